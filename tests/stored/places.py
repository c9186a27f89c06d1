"""Where the code keeps what is stored or on a wire. The keys are names of this test; the values are the only places
of it that follow when modules and classes move or get other names. What they lead to must not change."""

STRUCTS = {
    "run": "parley.runs.rules.state:Run",
    "event payload": "parley.runs.rules.events:Payload",
    "snapshot written": "parley.runs.rules.view:_Snapshot",
    "snapshot read": "parley.runs.rules.view:_Kept",
    "conversation": "parley.documents.rules:Conversation",
    "document": "parley.documents.rules:Document",
    "version": "parley.documents.rules:Version",
    "operation": "parley.documents.rules:DocumentChange",
    "delegation": "parley.nodes.delegations:Delegation",
    "node": "parley.nodes.rules:RegisteredNode",
    "heartbeat": "parley.nodes.rules:Heartbeat",
    "node event": "parley.nodes.rules:NodeEvent",
    "record": "parley.records:Record",
    "API key": "parley.security.keys:ApiKey",
    "signing key": "parley.security.signing:SigningKey",
    "runtime": "parley.paired.runtimes:Runtime",
    "runtime seen": "parley.paired.runtimes:RuntimeSeen",
    "hook": "parley.push.hooks:StoredHook",
    "delivery": "parley.runs.frames:StoredDelivery",
    "execution": "parley.tools.executions:ToolExecution",
    "budget": "parley.tools.executions:_Account",
    "listed execution": "parley.tools.mcp_calls:_Listed",
    "round of tools": "parley.drivers.llm.tool_rounds:ToolRound",
    "state of an organisation": "parley.orgkernel.steps:WorkflowState",
    "session": "parley.security.secrets:BrowserSession",
    "MCP mark": "parley.faces.mcp.calls:Mark",
    "export": "parley.documents.conversations:Exported",
    "backup": "parley.stores.backup:BackupManifest",
    "identity of a node": "parley.node.platform:NodeIdentity",
}

WORDS = {
    "record of an API key": "parley.security.keys:_KEY",
    "record of a key's name": "parley.security.keys:_HOLDER",
    "record of a key's use": "parley.security.keys:_USE",
    "records of signing keys": "parley.security.signing:_KINDS",
    "record of a pairing code": "parley.paired.runtimes:_CODE",
    "record of a runtime's token": "parley.paired.runtimes:_TOKEN",
    "record of a runtime": "parley.paired.runtimes:_RUNTIME",
    "record of a runtime's life": "parley.paired.runtimes:_SEEN",
    "record of a lease": "parley.paired.leases:KIND",
    "body of a lease that ends": "parley.paired.leases:_ENDING",
    "body of a lease that is held": "parley.paired.leases:_HELD_BY",
    "record of a budget": "parley.tools.executions:BUDGET_KIND",
    "record of a listed execution": "parley.tools.mcp_calls:KIND",
    "record of an execution": "parley.tools.executions:KIND",
    "record of a delivery": "parley.runs.frames:DELIVERY_KIND",
    "record of a frame": "parley.runs.frames:KIND",
    "record of a hook": "parley.push.hooks:KIND",
    "record of an added agent": "parley.definitions.added:KIND",
    "scope of keys that last": "parley.runs.store:LASTING",
    "owner of a run elsewhere": "parley.runs.rules.state:ELSEWHERE",
    "rules of the fold": "parley.runs.rules.state:FOLD",
    "slug of a node": "parley.nodes.rules:_SLUG",
    "mode of a delegation": "parley.nodes.delegations:MODE",
    "agent of recorded delegations": "parley.nodes.delegations:RECORDED",
    "artifact of a turn": "parley.runs.rules.events:RESPONSE",
    "token of an API key": "parley.security.keys:PREFIX",
    "file of secrets": "parley.security.secrets:FILE",
    "purpose of sessions": "parley.security.secrets:PURPOSE",
    "database of SQLite": "parley.stores.sqlite:FILE",
    "lock of SQLite": "parley.stores.sqlite_file:LOCK",
    "metadata: context": "parley.runs.rules.content:CONTEXT",
    "metadata: sampling": "parley.runs.rules.content:SAMPLING",
    "metadata: hops": "parley.runs.rules.content:HOPS",
    "settings": "parley.settings:PREFIX",
    "settings of a node": "parley.node.settings:PREFIX",
}

DRIVERS = (
    "parley.drivers.function:FunctionDriver",
    "parley.drivers.llm.driver:LlmDriver",
    "parley.drivers.command:CommandDriver",
    "parley.drivers.graph:GraphDriver",
    "parley.drivers.remote.driver:RemoteDriver",
    "parley.drivers.remote.nodes:NodeDriver",
    "parley.drivers.org.driver:OrgDriver",
    "parley.drivers.agentzero.driver:AgentZeroDriver",
    "parley.paired.driver:EdgeDriver",
    "parley.drivers.workflow:WorkflowDriver",
    "parley.compat.executor_driver:ExecutorDriver",
)

DRIVER_KIND = "parley.execution.driver:kind_of"
DEFINED_KINDS = "parley.definitions.agents:KINDS"
ERROR = "parley.errors:ParleyError"
SETTINGS = {"server": "parley.settings:Settings", "node": "parley.node.settings:NodeSettings"}
COMMANDS = {"parley": "parley.cli:app"}
ACTIONS = "parley.faces.actions.table:ACTIONS"
ACTION_CODES = "parley.faces.actions.table:STATUSES"
DOCUMENTS = ("/api/agent2agent/openapi.json", "/agent-runtimes/openapi.json")
DEVELOPMENT_KEYS = "parley.security.signatures:DEVELOPMENT_KEYS"
MIGRATE_SQLITE = "parley.stores.schema:migrate_sqlite"
MIGRATIONS = "parley.stores.schema:migrations"
PACKAGES = ("parley", "a2a_server")
TOLD_BY = ("tell", "span")
"""Functions whose first argument is the name of something that is told."""
