"""The agents of `near_agents.py` for a runtime: written with the adapter kit, in a separate process."""

import asyncio

from parley_edge.adapter import Adapter, Artifact, Failure, Output, Task


async def far(task: Task) -> Output:
    if task.target_agent_id == "far-reply":
        return Output(f"It is {task.text}.")
    match task.text:
        case "fail":
            raise Failure("It cannot be done.")
        case "ask":
            task.progress("thinking")
            return Output("Which one?", input_required=True)
        case "file":
            task.progress("writing")
            file = Artifact("out/r.md", "# Report", "Result", "short", ("a",), "text/markdown", "report")
            return Output("see the file", artifacts=[file])
        case "data":
            return Output("see the data", parts=[{"type": "data", "data": {"n": 1.0, "list": [1, "two", None]}}])
        case "long":
            return Output("word " * 20_000)
        case "hang":
            task.progress("asleep")
            await asyncio.Event().wait()
            raise AssertionError
        case text:
            task.progress("thinking")
            task.progress("still thinking")
            return Output(f"It is {text}.")


async def main() -> None:
    async with Adapter(far).listening(0) as endpoint:
        print(endpoint, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
