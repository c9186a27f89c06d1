export { Agent2AgentAPI } from "./api.js";
export type { BeginOptions, CallOptions, Completed, Events, Numbered, Task, Unfinished, WaitOptions } from "./api.js";
export type { FollowOptions } from "./following.js";
export type { ConnectionOptions } from "./http.js";
export {
  Agent2AgentError,
  ConflictError,
  ExecutionError,
  ForbiddenError,
  InvalidRequestError,
  NetworkError,
  NotFoundError,
  TimeoutError,
  UnauthorizedError,
  UnavailableError,
} from "./errors.js";
export type { ErrorCode, OwnCode } from "./errors.js";
export type * from "./types.js";
export type { MessageUsage as Usage } from "./types.js";
