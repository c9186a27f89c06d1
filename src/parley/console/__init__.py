"""The console: the exchange as people see and steer it, in a browser. A face like the others: it translates only.

How to add a page
-----------------
1. Write `console/pages/NAME.py` with a class that takes the `Desk` (what pages may ask) and has `pages()`, a list of
   `Page(method, path, handler, right)`. Paths are below `/console`; `right` is the scope that is demanded (`read`
   unless said otherwise, `send` to act, `admin` to look after the server).
2. A handler takes a `Visit` (who asks, `query`, `path`, `await visit.form()`) and gives a `Reply`:
   `visit.page("x.html", title=…, crumbs=[("Runs", "/runs")], …)`, `visit.fragment("_x.html", …)` for a piece that a
   script puts in its place, `redirect(…)`, or a `Stream` of server-sent frames. `visit.form()` checks the CSRF token:
   every POST calls it before it does anything. Raise our errors: they become pages (for a script: a notice). Whoever
   may not see something gets `NotFound`.
3. Add it to `SECTIONS` in `console/sections.py`: the class, and an entry for the navigation if it has one (label, path,
   icon). Nothing else knows the list of pages.
4. The template extends `frame.html` and fills `content`. Shared macros are in `_parts.html` (`badge`, `when`, `empty`,
   `pager`, `csrf`, `copyable`, `icon`, `markdown`). Whatever an agent or a user said is passed through the filter
   `plain` (control characters become visible; Jinja escapes the rest) or `markdown` (sanitised), inside `<bdi>` or an
   element with `dir="auto"`. No inline script or style: the Content-Security-Policy refuses both.
5. Styles: use the tokens of `static/tokens.css` (one type scale, one spacing scale, colours by meaning) and what
   `static/console.css` has (`card`, `stack`, `row`, `table`, `badge`, `notice`, `button`); a page's own rules go into
   `static/NAME.css`, named in the template's block `styles`.
6. Scripts: native modules in `static/`, one per custom element, imported in the template's block `scripts`. Shared:
   `stream.js` (`follow(url, after, on)`: an EventSource that goes on after a restart and loses nothing), `ask.js`
   (`post`, `fragment`: fetch with the CSRF token; what it returns is our own rendered HTML), `copy.js`, `times.js`.
   Pages work without scripts wherever a form can do it.
7. Add the page to `PAGES` in `tests/console/places.py`: that makes it part of the tests of size, of axe and of the
   screenshots (`make screenshots`).
"""
