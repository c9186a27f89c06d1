"""The web console: people see and control the server in a browser. A face like the others: it only translates.

How to add a page
-----------------
1. Write `console/pages/NAME.py` with a class that takes the `ConsoleContext` (all that pages may use) and has
   `pages()`, a list of `Page(method, path, handler, right)`. Paths are below `/console`; `right` is the required
   scope (`read` by default, `send` to act, `admin` to operate the server).
2. A handler takes a `PageRequest` (`principal`, `query`, `path`, `await visit.form()`) and returns a `PageReply`:
   `visit.page("x.html", title=…, crumbs=[("Runs", "/runs")], …)`, `visit.fragment("_x.html", …)` for a piece that a
   script inserts, `redirect(…)`, or a `PageStream` of server-sent frames. `visit.form()` checks the CSRF token:
   every POST calls it first. Raise Parley's errors: they become pages (for a script: a notice). Raise `NotFound` for
   what the caller may not see.
3. Add it to `SECTIONS` in `console/face.py`: the class, and a navigation entry if it has one (label, path, icon).
   There is no other list of pages.
4. The template extends `frame.html` and fills `content`. Shared macros are in `_parts.html` (`badge`, `when`, `empty`,
   `pager`, `csrf`, `copyable`, `icon`, `markdown`). Pass all text of agents and users through the filter
   `plain` (control characters become visible; Jinja escapes the rest) or `markdown` (sanitised), inside `<bdi>` or an
   element with `dir="auto"`. No inline script or style: the Content-Security-Policy refuses both.
5. Styles: use the tokens of `static/tokens.css` (one type scale, one spacing scale, colours by meaning) and the
   classes of `static/console.css` (`card`, `stack`, `row`, `table`, `badge`, `notice`, `button`); a page's own rules
   go into `static/NAME.css`, named in the template's block `styles`.
6. Scripts: native modules in `static/`, one per custom element, imported in the template's block `scripts`. Shared:
   `stream.js` (`follow(url, after, on)`: an EventSource that resumes after a restart and loses nothing), `ask.js`
   (`post`, `fragment`: fetch with the CSRF token; the response is HTML rendered by the server), `copy.js`, `times.js`.
   Pages work without scripts wherever a form can do it.
7. Add the page to `PAGES` in `tests/console/places.py`: this includes it in the tests of page size and accessibility
   (axe) and in the screenshots (`make screenshots`).
"""
