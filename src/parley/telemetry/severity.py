"""What of all that is told somebody should look at, and what nobody reads unless they look for it."""

WARNINGS = frozenset(
    {
        "agent.raised", "agents.refused", "agents.unwatched", "agentzero.failed", "agentzero.not_set_up",
        "append.deadlock", "append.failed", "append.unanswered", "auth.none", "command.failed", "config.unknown",
        "console.failed", "dispatch.failed", "document.failed", "executor.raised", "export.failed", "grpc.crashed",
        "http.crashed", "issuer.unavailable", "key.use_not_noted", "lease.not_ended", "lease.not_shortened",
        "ledger.broken", "ledger.dropped", "ledger.failed", "loop.broken", "loop.failed", "mcp.ended",
        "mcp.not_started", "mcp.stuck", "model.failed", "nodes.not_kept", "nodes.not_read",
        "org.command_failed", "org.model_failed", "org.no_sandbox", "org.not_reported", "org.problem", "org.unwatched",
        "push.broken", "push.dead", "push.refused", "push.rejected", "push.unreadable", "replica.buried",
        "replica.died", "retention.failed", "runtime.not_noted", "secrets.readable_by_others", "signals.lost",
        "signing.key_unreadable",
        "slots.vacated", "step.broken", "stream.broken", "tool.broken", "tool.failed", "tool.token_unreadable",
        "telemetry.failed", "tool.unwatched", "turn.broken", "turn.not_salvaged", "turn.stuck", "urls.unavailable",
    }
)  # fmt: skip
QUIET = frozenset(
    {
        "turn.not_needed", "turn.ended", "append.conflict", "auth.refused", "push.delivered", "send.refused",
        "tool.ended", "tool.late",
    }
)  # fmt: skip
