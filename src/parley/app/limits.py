"""The limits of a server and its kill switch: from its settings, and as operators set them at any replica."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from parley.budgets.service import LOOK_S as LIMITS_LOOK_S
from parley.budgets.service import LimitBook, StoredLimits, entries_of
from parley.errors import ConfigurationError, Invalid
from parley.execution.admission import LOOK_S, KillSwitch, WorkControl
from parley.execution.membership import Loop
from parley.records import Records
from parley.runs.service import Exchange
from parley.security.groups import Groups
from parley.settings import Settings


def open_book(settings: Settings) -> LimitBook:
    """Return the limits of the settings."""
    given = {subject: one.model_dump(exclude_none=True) for subject, one in settings.limits.items()}
    try:
        return LimitBook(entries_of(given))
    except Invalid as error:
        raise ConfigurationError(f"The setting limits: {error.message}", field="limits") from None


def stored_limits(exchange: Exchange, records: Records) -> StoredLimits:
    return StoredLimits(exchange.limits, records, exchange.store)


@asynccontextmanager
async def controlling(exchange: Exchange, records: Records, groups: Groups) -> AsyncGenerator[WorkControl, None]:
    """Open the limits that administrators set, and the kill switch. While open, those that were set at any replica hold
    at this one."""

    async def members(group: str) -> list[str]:
        return [one.principal for one in (await groups.members(group)).members]

    limits = stored_limits(exchange, records)
    switch = KillSwitch(exchange.stops, records, exchange.store, exchange.stop, members)
    await limits.tick()
    await switch.tick()
    loops = [Loop("limits", LIMITS_LOOK_S, limits.tick), Loop("stops", LOOK_S, switch.tick)]
    for loop in loops:
        loop.start()
    try:
        yield WorkControl(limits, switch)
    finally:
        for loop in loops:
            await loop.stop()
