"""The figures of the last hour."""

from parley.telemetry.metrics import BOUNDS_S, EVERY_S, HOUR_MS, KEPT, Samples, per_minute, quantile

NOTHING = (0.0,) * (len(BOUNDS_S) + 1)
STEP_MS = int(EVERY_S * 1000)


def counts(**at: float) -> tuple[float, ...]:
    return tuple(at.get(f"b{place}", 0.0) for place in range(len(BOUNDS_S) + 1))


def test_what_came_between_two_samples_is_their_difference() -> None:
    samples = Samples()
    samples.add(0, counts(b0=5), NOTHING)
    samples.add(STEP_MS, counts(b0=8), counts(b3=1))
    (span,) = samples.spans(STEP_MS)
    assert sum(span.answers) == 3
    assert per_minute(span.answers, span) == 3 * 60_000 / STEP_MS
    assert sum(span.turns) == 1


def test_an_hour_is_kept_in_as_many_pieces_as_are_asked_for_and_no_count_is_lost() -> None:
    samples = Samples()
    for place in range(KEPT * 2):
        samples.add(place * STEP_MS, counts(b0=float(place)), NOTHING)
    now = (KEPT * 2 - 1) * STEP_MS
    spans = samples.spans(now, 60)
    assert len(spans) <= 60
    assert spans[-1].end == now
    assert spans[0].begin >= now - HOUR_MS - STEP_MS
    assert sum(sum(span.answers) for span in spans) == (spans[-1].end - spans[0].begin) / STEP_MS


def test_a_quantile_lies_within_its_bucket() -> None:
    assert quantile(NOTHING, 0.5) is None
    one = quantile(counts(b3=10), 0.5)
    assert one is not None
    assert BOUNDS_S[2] < one <= BOUNDS_S[3]
    assert quantile(counts(**{f"b{len(BOUNDS_S)}": 3}), 0.95) == BOUNDS_S[-1]
