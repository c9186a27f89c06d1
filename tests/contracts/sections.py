"""The sections of the five contracts, and the tests of this suite that send their examples.

A section that has no example of its own, or whose tests are elsewhere, says so in a few words; files are named.
"""

Covered = tuple[str, ...] | str

NO_EXAMPLE = "Explains; there is nothing to send."

LOCAL_ADAPTER: dict[str, Covered] = {
    "Environment binding / API base rule": ("test_environment_binding_api_base_rule",),
    "Official Runtime Default": (
        "test_official_runtime_default",
        "test_profile_resolution_explicit_then_active_then_only",
    ),
    "OpenClaw Compatibility": ("test_openclaw_compatibility",),
    "Request": ("test_request", "test_request_to_an_adapter"),
    "Platform origin field": ("test_platform_origin_field",),
    "Successful Response": ("test_successful_response", "test_task_run_bodies"),
    "Failed Response": (
        "test_failed_response",
        "test_failed_response_fails_the_task_when_it",
        "test_failed_response_cannot_be_reached",
        "test_failed_response_times_out",
        "test_task_run_bodies",
    ),
    "Adapter artifact output shape": ("test_adapter_artifact_output_shape",),
    "Runtime materialization": ("test_runtime_materialization", "test_runtime_materialization_write_fails"),
    "Security boundary": ("test_security_boundary",),
    "Non-Goals": NO_EXAMPLE,
}

ORGANISATION: dict[str, Covered] = {
    "Agent Card Generation: Endpoint": ("test_agent_card_generation_endpoint",),
    "Agent Card Generation: Generation Logic": "tests/drivers/org/test_routing.py",
    "Example Generated Agent Card": ("test_example_generated_agent_card",),
    "message/send": ("test_message_send",),
    "message/stream": ("test_message_stream", "test_message_stream_salute_to_sse_event_mapping"),
    "tasks/get": ("test_tasks_get",),
    "tasks/cancel": ("test_tasks_cancel",),
    "Task Registry": ("test_task_registry",),
    "PACE → A2A State Mapping": (
        "test_pace_to_a2a_state_mapping_contingent_input_needed",
        "test_pace_to_a2a_state_mapping_emergency_failed",
    ),
    "Artifact Collection": ("test_artifact_collection",),
    "Server Configuration": ("test_server_configuration",),
    "Behavioral Requirements: Startup": ("test_startup_command",),
    "Behavioral Requirements: Agent Card Refresh": "tests/drivers/org/test_driver.py",
    "Behavioral Requirements: Task Processing": ("test_message_send", "test_message_stream"),
    "Behavioral Requirements: Error Handling": ("test_error_handling",),
    "Behavioral Requirements: Logging": "tests/a2a_server/test_server.py",
    "Testing Criteria": "tests/a2a_server/test_contract.py",
    "File Structure": ("test_file_structure",),
    "Startup Command": ("test_startup_command",),
    "Installation": "tests/a2a_server/test_deploy.py",
    "Docker Integration": ("test_docker_integration",),
    "Relationship to Existing Architecture": NO_EXAMPLE,
    "Future Extensions": NO_EXAMPLE,
    "Why This Matters": ("test_message_stream_salute_to_sse_event_mapping",),
}

_DOCUMENTS = (
    "create", "read", "list", "edit", "set_current", "delete_version", "merge_versions", "copy_version", "delete",
)  # fmt: skip
_ORCHESTRATIONS = ("read", "list", "pause", "resume", "cancel", "retry_step", "delete")

ACTIONS: dict[str, Covered] = {
    "Single Endpoint": ("test_single_endpoint",),
    "Every Request Has": ("test_every_request_has",),
    "Every Response Has": ("test_every_response_has",),
    **{f"Mode: PLAN: {name}": (f"test_mode_plan_{name}",) for name in _DOCUMENTS},
    **{f"Mode: BUILD: {name}": (f"test_mode_build_{name}",) for name in (*_DOCUMENTS, "rerun")},
    "Mode: CONVERSE: read_conversation": ("test_mode_converse_read_conversation",),
    "Mode: CONVERSE: delete_conversation": ("test_mode_converse_delete_conversation",),
    "Mode: CONVERSE: export_conversation": ("test_mode_converse_export_conversation",),
    "Mode: TOOL: execute": ("test_mode_tool_execute", "test_mode_tool_execute_example_supabase_query"),
    "Mode: TOOL: read": ("test_mode_tool_read",),
    "Mode: TOOL: list": ("test_mode_tool_list",),
    "Mode: ORCHESTRATE: create": ("test_mode_orchestrate_create", "test_mode_orchestrate_create_example"),
    **{f"Mode: ORCHESTRATE: {name}": (f"test_mode_orchestrate_{name}",) for name in _ORCHESTRATIONS},
    "Error Codes": ("test_error_codes", "test_error_codes_database_error", "test_error_response_example"),
    "Complete Mode × Action Matrix": ("test_complete_mode_action_matrix",),
    "Frontend TypeScript SDK Pattern": ("test_frontend_typescript_sdk_pattern",),
    "Next Steps": NO_EXAMPLE,
}

CONTROL_PLANE: dict[str, Covered] = {
    "Conventions": ("test_conventions",),
    "Entity IDs": ("test_entity_ids",),
    "Error Envelope": ("test_error_envelope", "test_error_envelope_standard_error_codes"),
    "Cursor Semantics": ("test_cursor_semantics",),
    "Stream Tail Window (tail_ms)": ("test_stream_tail_window",),
    "Idempotency (frame_id)": ("test_idempotency_frame_id",),
    "Cancellation Semantics": ("test_cancellation_semantics",),
    "GET /internal/v1/health": ("test_get_internal_v1_health",),
    "POST /internal/v1/comms/delivery-events": ("test_post_internal_v1_comms_delivery_events",),
    "POST /internal/v1/tools/execute": (
        "test_post_internal_v1_tools_execute",
        "test_post_internal_v1_tools_execute_minimal",
        "test_post_internal_v1_tools_execute_validation_failure",
    ),
    "GET /internal/v1/runs/{run_id}/snapshot": ("test_get_internal_v1_runs_run_id_snapshot",),
    "POST /internal/v1/runs/{run_id}/frames": ("test_post_internal_v1_runs_run_id_frames",),
    "GET /internal/v1/runs/{run_id}/stream": ("test_get_internal_v1_runs_run_id_stream",),
    "POST /internal/v1/runs/{run_id}/cancel": ("test_post_internal_v1_runs_run_id_cancel",),
    "Ownership and Principal Enforcement": ("test_ownership_and_principal_enforcement",),
    "Tracing Contract": ("test_tracing_contract",),
    "Contract change log": NO_EXAMPLE,
    "Backward Compatibility Rule": "tests/faces/control/test_openapi.py",
}

WORKSPACES: dict[str, Covered] = {
    "How It Works": ("test_how_it_works",),
    "Discovery Flow": ("test_discovery_flow",),
    "Message Format": ("test_message_format",),
    "On-Demand Discovery (Not Pushed)": ("test_on_demand_discovery",),
    "Authentication Between Workspaces": ("test_authentication_between_workspaces",),
    "Task Lifecycle": ("test_task_lifecycle",),
    "Calling Patterns": (
        "test_calling_patterns_synchronous",
        "test_calling_patterns_streaming",
        "test_calling_patterns_streaming_on_the_wire",
    ),
    "Task ID": ("test_task_id",),
    "Cancellation": ("test_cancellation", "test_cancellation_executor"),
    "Artifacts": ("test_artifacts",),
    "Platform A2A Proxy": ("test_platform_a2a_proxy",),
    "Key Properties": ("test_key_properties",),
    "Related Docs": NO_EXAMPLE,
}

CONTRACTS: dict[str, dict[str, Covered]] = {
    "local_adapter": LOCAL_ADAPTER,
    "organisation": ORGANISATION,
    "actions": ACTIONS,
    "control_plane": CONTROL_PLANE,
    "workspaces": WORKSPACES,
}
"""By the name of the module."""
