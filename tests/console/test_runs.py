"""The list of runs, a run's page, and what can be done with it."""

import json
import re
import shlex
import subprocess

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import Running, Visitor, send, start


def test_runs_are_filtered_and_found_by_their_id(server: Running, made: dict[str, str], page: Page) -> None:
    page.goto(f"{server.console}/runs")
    page.get_by_label("Agent").select_option("writer")
    page.get_by_label("State").select_option("waiting")
    page.get_by_role("button", name="Filter").click()
    rows = page.locator(".run-row")
    expect(rows.first).to_contain_text("needs input")
    assert set(rows.locator("td.agent").all_inner_texts()) == {"Writer"}
    page.get_by_role("link", name="Clear filters").click()
    search = page.get_by_label("Search")
    search.fill(made["echo"][:30])
    search.press("Enter")
    expect(page.locator(f'.run-row a[href$="{made["echo"]}"]')).to_be_visible()
    search.fill(made["echo"])
    search.press("Enter")
    page.wait_for_url(f"{server.console}/runs/{made['echo']}")
    for wrong in ("state=nonsense", "after=nonsense", "id=%20!", "since=yesterday", "until=2026-13-01"):
        assert page.goto(f"{server.console}/runs?{wrong}").status == 400  # type: ignore[union-attr]
    page.goto(f"{server.console}/runs?agent=evil&state=rejected")
    expect(page.get_by_role("heading", name="No matching runs")).to_be_visible()


def test_runs_are_found_by_their_words_and_day_and_conversation(server: Running, page: Page) -> None:
    failed = send(server, "fussy", "fail at the Käsefondue")
    page.goto(f"{server.console}/runs")
    page.get_by_label("Search").fill("kasefondue unexpected")
    page.get_by_role("button", name="Filter").click()
    row = page.locator(".run-row")
    expect(row).to_have_count(1)
    expect(row.locator(".run-title")).to_have_text("fail at the Käsefondue")
    expect(row.locator(".run-error")).to_contain_text("agent_error")
    page.goto(f"{page.url}&state=failed&agent=fussy&principal=local&since=2020-01-01&until=2999-12-31")
    expect(row).to_have_count(1)
    for other in (
        "state=completed",
        "agent=echo",
        "principal=user:1",
        "until=2020-01-01",
        "since=2999-01-01",
        "q=fond",
    ):
        page.goto(f"{server.console}/runs?q=kasefondue&{other}")
        expect(page.get_by_role("heading", name="No matching runs")).to_be_visible()
    page.goto(f"{server.console}/runs/{failed}")
    conversation = page.locator(".facts a[href*=conversations] code").inner_text()
    page.goto(f"{server.console}/runs?conversation={conversation}&since=2020-01-01")
    expect(row).to_have_count(1)


def test_the_list_of_runs_is_live(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/runs?agent=writer")
    page.locator(".run-row .pick input").first.check()
    kept = page.locator(".run-row").first.get_attribute("id")
    run = send(server, "writer", "a live one")
    row = page.locator(f"#run-{run}")
    expect(row).to_contain_text("needs input")
    assert page.locator(".run-row").first.get_attribute("id") == f"run-{run}", "the newest is the first"
    expect(page.locator(f"#{kept} .pick input")).to_be_checked()
    with Visitor(server) as visitor:
        visitor.get("/inbox")
        visitor.post(f"/runs/{run}/answer", {"text": "Bob"})
    expect(row).to_contain_text("completed")


def test_several_runs_are_canceled_and_retried_at_once(server: Running, page: Page) -> None:
    word = "bulkaction"
    with Visitor(server) as visitor:
        for _ in range(2):
            visitor.post("/agents/sleeper/try", {"text": word})
    done = send(server, "echo", word)
    page.goto(f"{server.console}/runs?q={word}")
    expect(page.get_by_role("button", name="Cancel selected")).to_be_disabled()
    page.get_by_label("Select all").check()
    expect(page.get_by_role("status").filter(has_text="3 selected")).to_be_visible()
    page.get_by_role("button", name="Cancel selected").click()
    expect(page.get_by_text("Done for 2 runs. 1 could not be changed in their present state.")).to_be_visible()
    expect(page.locator(".run-row", has_text="canceled")).to_have_count(2)
    assert f"q={word}" in page.url
    page.locator(f"#run-{done} .pick input").check()
    page.get_by_role("button", name="Retry selected").click()
    expect(page.get_by_text("Done for 1 run.")).to_be_visible()
    expect(page.locator(".run-row", has_text="completed")).to_have_count(2)
    assert page.context.request.post(f"{server.console}/runs/cancel", form={"run.x": "1"}).status == 403


def test_all_matching_runs_are_retried_at_once(server: Running, page: Page) -> None:
    for number in range(33):
        send(server, "echo", f"everymatch {number}")
    page.goto(f"{server.console}/runs?q=everymatch")
    retry = page.get_by_role("button", name="Retry selected")
    expect(retry).to_be_disabled()
    page.get_by_label("All matching runs").check()
    retry.click()
    expect(page.get_by_text("Done for 33 runs.")).to_be_visible()
    page.goto(f"{server.console}/runs?q=everymatch+17")
    expect(page.locator(".run-row")).to_have_count(2)
    expect(page.get_by_label("All matching runs")).to_have_count(0)


@pytest.mark.slow
def test_pages_follow_each_other_and_miss_no_run(server: Running, page: Page) -> None:
    sent = {send(server, "echo", f"number {number}") for number in range(35)}
    page.goto(f"{server.console}/runs?agent=echo")
    seen = [href.rpartition("/")[2] for href in _links(page)]
    assert len(seen) == 30
    send(server, "echo", "meanwhile")
    while (more := page.get_by_role("link", name="Next page")).count():
        more.click()
        page.wait_for_load_state()
        seen += [href.rpartition("/")[2] for href in _links(page)]
    assert len(set(seen)) == len(seen)
    assert sent <= set(seen)


def test_text_grows_while_it_comes_and_stays_when_it_is_done(server: Running, page: Page) -> None:
    page.goto(f"{server.console}/agents/slow")
    page.get_by_label("Message to Slow").fill("12")
    page.get_by_role("button", name="Send").click()
    words = page.locator(".try-out .entry[data-kind=agent] .words")
    expect(words).to_contain_text("w2")
    expect(words).to_have_class(re.compile("growing"))
    assert "w12" not in words.inner_text()
    expect(words).to_contain_text("w12")
    expect(page.locator(".try-out .panel")).to_contain_text("completed")
    assert words.inner_text().split() == [f"w{number}" for number in range(1, 13)]
    expect(page.locator(".try-out .piece")).to_contain_text('"counted": 12')


HEAR = """
const Source = window.EventSource;
window.heard = [];
window.EventSource = class extends Source {
  constructor(...given) {
    super(...given);
    if (given[0].toString().includes('/events')) {
      this.addEventListener('message', (event) => window.heard.push(Number(event.lastEventId)));
    }
  }
};"""
"""Notes the numbers of the events that a page's stream brings, over all of its connections."""


@pytest.mark.slow
def test_two_browsers_show_every_event_once_while_the_server_is_killed_and_restarted(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    data = tmp_path_factory.mktemp("restarted") / "data"
    server = start(data)
    sizes = [{"width": 1440, "height": 900}, {"width": 390, "height": 844}]
    pages = [browser.new_context(viewport=size, reduced_motion="reduce").new_page() for size in sizes]  # pyright: ignore[reportArgumentType]
    for page in pages:
        page.add_init_script(HEAR)
        page.goto(f"{server.console}/inbox")
    with Visitor(server) as visitor:
        run = visitor.post("/agents/slow/try", {"text": "70"}).headers["location"].rpartition("/")[2]
    for page in pages:
        page.goto(f"{server.console}/runs/{run}", wait_until="commit")
    for page in pages:
        expect(page.locator(".entry[data-kind=agent] .words").first).to_contain_text("w5", timeout=30_000)
    port = int(server.url.rpartition(":")[2])
    server.stop(9)
    for page in pages:
        expect(page.locator("#connection")).to_have_attribute("data-state", "again")
    server = start(data, port)
    try:
        for page in pages:
            expect(page.locator(".panel")).to_contain_text("completed", timeout=30_000)
            shown = page.locator(".entries").inner_text()
            heard: list[int] = page.evaluate("window.heard")
            assert heard == sorted(set(heard)), "no event came twice, none out of order"
            version = int(str(page.locator("run-timeline").get_attribute("data-after")))
            expect(page.locator("#connection")).to_have_attribute("data-state", "on")
            assert heard[-1] == version
            page.reload()
            # What grew on the page and what is read at once from the log are the same, word for word.
            assert _words(page.locator(".entries").inner_text()) == _words(shown)
            assert "the run continues (attempt" in shown
    finally:
        for page in pages:
            page.context.close()
        server.stop()


def test_a_long_log_is_read_page_by_page(server: Running, page: Page) -> None:
    run = send(server, "chatty", "go")
    page.goto(f"{server.console}/runs/{run}")
    expect(page.get_by_text("remark 150.", exact=True)).to_be_visible()
    expect(page.get_by_text("remark 50.", exact=True)).to_have_count(0)
    page.get_by_role("link", name="Show earlier entries").click()
    expect(page.get_by_text("remark 1.", exact=True)).to_be_visible()
    expect(page.get_by_text("remark 51.", exact=True)).to_be_visible()
    expect(page.get_by_text("remark 52.", exact=True)).to_have_count(0)
    page.get_by_role("link", name="Show latest entries").click()
    expect(page.get_by_text("remark 52.", exact=True)).to_be_visible()


def test_files_can_be_seen_and_saved(server: Running, made: dict[str, str], page: Page) -> None:
    page.goto(f"{server.console}/runs/{made['painter']}")
    picture = page.locator(".piece img")
    picture.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('.piece img').naturalWidth === 48")
    expect(page.locator(".piece[data-kind=markdown] li")).to_have_count(2)
    expect(page.locator(".piece[data-kind=code]")).to_contain_text("return 42")
    expect(page.locator(".words table td").first).to_have_text("1")
    with page.expect_download() as saved:
        page.locator(".piece", has_text="bytes.bin").get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == "bytes.bin"
    assert saved.value.path().read_bytes() == bytes(range(256))


def test_a_call_of_a_tool_has_its_receipt(server: Running, made: dict[str, str], page: Page) -> None:
    page.goto(f"{server.console}/runs/{made['accounts']}")
    tool = page.locator("details.tool")
    expect(tool).to_contain_text("succeeded")
    tool.locator("summary").click()
    expect(tool).to_contain_text("financial_transactions")
    expect(tool.locator(".receipt code")).to_have_text(re.compile(r"^[0-9a-f]{64}$"))


def test_a_run_is_canceled(server: Running, page: Page) -> None:
    with Visitor(server) as visitor:
        run = visitor.post("/agents/sleeper/try", {"text": "go"}).headers["location"].rpartition("/")[2]
    page.goto(f"{server.console}/runs/{run}")
    expect(page.get_by_text("Counting sheep")).to_be_visible()
    page.get_by_role("button", name="Cancel run").click()
    expect(page.locator(".panel")).to_contain_text("canceled")
    expect(page.get_by_role("button", name="Cancel run")).to_have_count(0)


def test_a_question_is_answered_on_the_page_of_its_run(server: Running, page: Page) -> None:
    run = send(server, "writer", "Faro")
    page.goto(f"{server.console}/runs/{run}")
    page.get_by_label("Your answer").fill("Bob")
    page.get_by_role("button", name="Send answer").click()
    expect(page.get_by_text("The postcard to Bob is ready.")).to_be_visible()
    expect(page.locator(".piece[data-kind=markdown]")).to_contain_text("Dear Bob")
    expect(page.get_by_label("Your answer")).to_have_count(0)


def test_a_fork_goes_another_way(server: Running, page: Page) -> None:
    run = send(server, "writer", "Beja")
    page.goto(f"{server.console}/runs/{run}")
    page.locator("#fork").get_by_label("Message").fill("Carl")
    page.locator("#fork").get_by_role("button", name="Fork run").click()
    expect(page.get_by_text("The postcard to Carl is ready.")).to_be_visible()
    assert run not in page.url
    expect(page.locator(".facts")).to_contain_text("Fork of")
    page.goto(f"{server.console}/runs/{run}")
    expect(page.locator(".panel")).to_contain_text("needs input")
    page.locator("#fork").get_by_label("After event").fill("9999")
    page.locator("#fork").get_by_role("button", name="Fork run").click()
    expect(page.get_by_text("there is no event 9999")).to_be_visible()


def test_a_failed_run_shows_its_traceback_and_is_retried(server: Running, page: Page) -> None:
    run = send(server, "fussy", "fail with a traceback")
    page.goto(f"{server.console}/runs/{run}")
    expect(page.locator(".entry[data-kind=bad]")).to_contain_text("agent_error")
    expect(page.locator(".problem pre")).to_contain_text('raise ValueError(f"Not this time. token={REDACTED_KEY}")')
    expect(page.locator(".problem pre")).to_contain_text("ValueError: Not this time. token=[REDACTED]")
    expect(page.locator(".gantt li")).to_have_count(1)
    expect(page.locator(".gantt .bar[data-state=bad]")).to_have_count(1)
    expect(page.locator(".run-head")).to_contain_text("failed")
    expect(page.locator(".run-head .run-code")).to_have_text("agent_error")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("A room above the harbour.")).to_be_visible()
    assert run not in page.url
    page.get_by_role("link", name="compare", exact=True).click()
    expect(page.get_by_role("heading", name="Compare runs")).to_be_visible()
    expect(page.locator(".figures").first).to_contain_text("agent_error")
    expect(page.get_by_role("region", name="Difference of outputs")).to_contain_text("A room above the harbour.")
    expect(page.get_by_role("region", name="Difference of turns, steps and tools")).to_contain_text("Turn 1 (failed)")


def test_a_traceback_comes_live_and_only_to_administrators(server: Running, page: Page) -> None:
    with Visitor(server) as visitor:
        begun = visitor.post("/agents/fussy/try", {"text": "slowly fail"})
        page.goto(f"{server.console}/runs/{begun.headers['location'].rpartition('/')[2]}")
    expect(page.locator(".problem pre")).to_contain_text("ValueError")
    expect(page.locator(".run-head .run-state")).to_have_text("failed")
    expect(page.locator(".gantt .bar[data-state=bad]")).to_have_count(1)


def test_a_run_is_forked_from_one_of_its_events(server: Running, made: dict[str, str], page: Page) -> None:
    page.goto(f"{server.console}/runs/{made['relay']}")
    expect(page.locator(".gantt li[data-kind=child]")).to_contain_text("Echo")
    entry = page.locator(".entry[data-kind=you]").first
    entry.hover()
    entry.get_by_role("link", name="Fork from event 2").click()
    expect(page.locator("#fork").get_by_label("After event")).to_have_value("2")
    page.locator("#fork").get_by_role("button", name="Fork run").click()
    expect(page.locator(".facts")).to_contain_text("at event 2")


def test_the_event_of_an_entry_is_shown_below_it(server: Running, made: dict[str, str], page: Page) -> None:
    page.goto(f"{server.console}/runs/{made['accounts']}")
    entry = page.locator(".entry[data-kind=you]")
    link = entry.get_by_role("link", name="Show event 2")
    link.click()
    expect(entry.locator(".raw-event pre")).to_contain_text('"type": "input"')
    link.click()
    expect(entry.locator(".raw-event")).to_have_count(0)
    tool = page.locator(".entry[data-kind=tool]")
    tool.locator("summary").first.click()
    tool.get_by_role("link", name="Show event").click()
    expect(tool.locator(".raw-event pre")).to_contain_text('"type": "tool_call"')
    page.goto(f"{server.url}{link.get_attribute('href')}")
    expect(page.locator(".raw-event[open] .seq")).to_have_text("2")
    with Visitor(server) as visitor:
        headers = {"X-Requested-With": "parley"}
        assert visitor.http.get(f"/runs/{made['echo']}/raw?event=999", headers=headers).status_code == 404
        assert visitor.get(f"/runs/{made['echo']}/raw?event=x").status_code == 400


def test_the_log_can_be_read_raw_and_followed_in_a_terminal(
    server: Running, made: dict[str, str], page: Page
) -> None:  # fmt: skip
    page.goto(f"{server.console}/runs/{made['writer']}")
    command = f"parley tail {made['writer']} --from 0 --url {server.url}"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy command").click()
    expect(page.locator(".copied")).to_have_count(1)
    assert page.evaluate("navigator.clipboard.readText()") == command
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.locator(".copied")).to_have_count(2)
    sent = subprocess.run(shlex.split(page.evaluate("navigator.clipboard.readText()")), capture_output=True, check=True)
    assert json.loads(sent.stdout)["task"]["history"][0]["parts"] == [{"text": "Lisbon"}]
    page.get_by_role("link", name="View raw events").click()
    expect(page.locator(".raw li").first).to_contain_text("submitted")
    page.locator(".raw summary").first.click()
    expect(page.locator(".raw li").first).to_contain_text('"agent": "writer"')


def test_the_id_of_a_trace_is_shown(server: Running, page: Page) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    asked = {"message": {"messageId": "traced", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    headers = {"A2A-Version": "1.0", "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    task = httpx2.post(f"{server.url}/agents/echo/message:send", json=asked, headers=headers).json()["task"]["id"]
    page.goto(f"{server.console}/runs/{task}")
    expect(page.locator(".facts")).to_contain_text(trace)


def _links(page: Page) -> list[str]:
    return [str(row.get_attribute("href")) for row in page.locator(".run-row a").all()]


def _words(text: str) -> list[str]:
    return re.findall(r"\bw\d+\b", text)
