// Structured logging: one JSON object per line. Callers never log keys, tokens or prompts; bearer keys are removed here
// as well. Pure: lines go to the given sink.

/** The least severe first. */
export const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]
export type LogFields = { readonly [key: string]: unknown }

export type Logger = {
  readonly debug: (message: string, fields?: LogFields) => void
  readonly info: (message: string, fields?: LogFields) => void
  readonly warn: (message: string, fields?: LogFields) => void
  readonly error: (message: string, fields?: LogFields) => void
  /** A logger for one unit: every line carries `unit`. */
  readonly unit: (name: string) => Logger
}

type LogSink = (line: string) => void

const lineCharsMax = 16_384

/** A bearer key of any of our kinds. Its prefix is kept, for support. */
const SECRET = /\b((?:ca|gw)_[a-z0-9]{8}_)[a-z0-9]{18,32}\b/g

/** Removes the secret part of every key in a text. */
export function redact(text: string): string {
  return text.replace(SECRET, '$1[redacted]')
}

type LoggerOptions = {
  readonly level: LogLevel
  readonly sink: LogSink
  readonly nowMs: () => number
  readonly name?: string
  /** For the journal: each line begins with its priority (sd-daemon(3)). */
  readonly priorities?: boolean
}

/** sd-daemon(3): the levels of syslog(3) in angle brackets. */
export const JOURNAL_PRIORITIES = {
  debug: '<7>',
  info: '<6>',
  warn: '<4>',
  error: '<3>',
} as const satisfies Record<LogLevel, string>

export function createLogger(options: LoggerOptions): Logger {
  const threshold = LOG_LEVELS.indexOf(options.level)
  const write = (level: LogLevel, message: string, fields: LogFields = {}) => {
    if (LOG_LEVELS.indexOf(level) < threshold) return
    const record = { time: new Date(options.nowMs()).toISOString(), level, unit: options.name, message, ...fields }
    const priority = options.priorities === true ? JOURNAL_PRIORITIES[level] : ''
    options.sink(priority + redact(JSON.stringify(record, plainErrors)).slice(0, lineCharsMax))
  }
  return {
    debug: (message, fields) => write('debug', message, fields),
    info: (message, fields) => write('info', message, fields),
    warn: (message, fields) => write('warn', message, fields),
    error: (message, fields) => write('error', message, fields),
    unit: name => createLogger({ ...options, name }),
  }
}

/** A logger that writes nothing, for tests and tools that report in another way. */
export const silentLogger: Logger = createLogger({ level: 'error', sink: () => {}, nowMs: () => 0 })

function plainErrors(_key: string, value: unknown): unknown {
  if (!(value instanceof Error)) return value
  return { name: value.name, message: value.message, code: Reflect.get(value, 'code'), cause: value.cause }
}
