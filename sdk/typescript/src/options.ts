/** Checks of options at run time, for callers without types. */

type Check = (value: unknown) => string | undefined;

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isFunction = (value: unknown): boolean => typeof value === "function";
const isAmount = (value: unknown): boolean => typeof value === "number" && value >= 0;

const CHECKS: Record<string, Check> = {
  apiKey: (value) => (typeof value === "string" || isFunction(value) ? undefined : "a string or a function"),
  headers: (value) =>
    isRecord(value) && Object.values(value).every((one) => typeof one === "string")
      ? undefined
      : "an object of strings",
  fetch: (value) => (isFunction(value) ? undefined : "a function"),
  retries: (value) => (isAmount(value) ? undefined : "a number that is not negative"),
  delayMs: (value) => (isFunction(value) ? undefined : "a function"),
  timeoutMs: (value) => (isAmount(value) ? undefined : "a number of milliseconds that is not negative"),
};

/** Throws a TypeError that names the first option that is missing or wrong. */
export function checkOptions(options: unknown): void {
  if (!isRecord(options)) {
    throw new TypeError(`options must be an object with a baseUrl, not ${described(options)}.`);
  }
  checkBaseUrl(options["baseUrl"]);
  for (const [name, check] of Object.entries(CHECKS)) {
    const value = options[name];
    const expected = value === undefined ? undefined : check(value);
    if (expected !== undefined) throw new TypeError(`options.${name} must be ${expected}, not ${described(value)}.`);
  }
}

function checkBaseUrl(value: unknown): void {
  const expected = 'an http or https address such as "https://parley.example", or in a page a path';
  if (typeof value !== "string") throw new TypeError(`options.baseUrl must be ${expected}, not ${described(value)}.`);
  if (value === "" || value.startsWith("/")) return;
  const protocol = protocolOf(value);
  if (protocol !== "http:" && protocol !== "https:") {
    throw new TypeError(`options.baseUrl must be ${expected}, not ${JSON.stringify(value)}.`);
  }
}

function protocolOf(address: string): string | undefined {
  try {
    return new URL(address).protocol;
  } catch {
    return undefined;
  }
}

/** The kind of a value and never the value itself, which may be a secret. */
function described(value: unknown): string {
  if (value === undefined || value === null || Number.isNaN(value)) return String(value);
  if (Array.isArray(value)) return "an array";
  return `${/^[aeiou]/.test(typeof value) ? "an" : "a"} ${typeof value}`;
}
