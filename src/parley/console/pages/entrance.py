"""The way in and out: `/console` itself, login, logout, and whether it is light or dark."""

from parley.console.desk import Desk
from parley.console.pages.page import Page
from parley.console.replies import PREFIX, Reply, redirect
from parley.console.visits import THEME, THEMES, Visit
from parley.errors import Invalid, Unauthenticated

_YEAR_S = 365 * 24 * 3600


class EntrancePages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "", self.home, None),
            Page("GET", "/", self.home, None),
            Page("GET", "/login", self.asked, None),
            Page("POST", "/login", self.login, None),
            Page("POST", "/logout", self.logout, None),
            Page("POST", "/theme", self.theme, None),
        ]

    async def home(self, visit: Visit) -> Reply:
        return redirect("/inbox")

    async def asked(self, visit: Visit) -> Reply:
        if visit.known:
            return redirect("/inbox")
        return self._form(visit, _place(visit.query.get("next", "")))

    async def login(self, visit: Visit) -> Reply:
        form = await visit.form()
        credential, place = form.get("credential", "").strip(), _place(form.get("next", ""))
        try:
            await self._desk.gate.credentials.principal_for(credential)
        except Unauthenticated as error:
            return self._form(visit, place, error.message, 401)
        visit.login(credential)
        return redirect(place or "/inbox")

    async def logout(self, visit: Visit) -> Reply:
        await visit.form()
        visit.logout()
        return redirect("/login" if self._desk.gate.auth == "required" else "/inbox")

    async def theme(self, visit: Visit) -> Reply:
        form = await visit.form()
        chosen = form.get("theme", "")
        if chosen not in ("", *THEMES):
            raise Invalid("The theme is light or dark, or empty for what the machine says.", field="theme")
        visit.set_cookie(THEME, chosen, _YEAR_S if chosen else 0)
        return redirect(_place(form.get("next", "")) or "/inbox")

    def _form(self, visit: Visit, place: str, message: str = "", status: int = 200) -> Reply:
        return visit.page("login.html", title="Sign in", status=status, place=place, message=message)


def _place(address: str) -> str:
    """Where to go on: only ever to a page of the console."""
    path = address.removeprefix(PREFIX)
    ours = path != address and path.startswith("/") and address.isascii() and address.isprintable()
    return path if ours and "//" not in path and "\\" not in path else ""
