// Runs the build's tools with an environment that holds nothing of the host: fixed locale, time zone and PATH. Effects.

import { ImageFault } from './image-fault.ts'

const outputCharsMax = 4_000_000
const errorCharsShown = 4_000

export type ToolOptions = {
  readonly cwd?: string
  readonly timeoutMs: number
  readonly env?: Readonly<Record<string, string>>
  /** Take the caller's environment as well; for fetching only (proxies, npm configuration). */
  readonly inheritEnv?: boolean
}

/** Runs a tool to its end and gives its standard output. Throws tool_missing, tool_failed, tool_timeout. */
export async function runTool(argv: readonly [string, ...string[]], options: ToolOptions): Promise<string> {
  const [name] = argv
  const path = Bun.which(name, { PATH: toolPath })
  if (path === null) throw new ImageFault('tool_missing', `${name} is not installed`)
  const child = Bun.spawn([path, ...argv.slice(1)], {
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    env: { ...(options.inheritEnv ? process.env : {}), ...toolEnv, ...options.env },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
  let expired = false
  const deadline = setTimeout(() => {
    expired = true
    child.kill('SIGKILL')
  }, options.timeoutMs)
  try {
    const [stdout, stderr, status] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
    if (expired) throw new ImageFault('tool_timeout', `${name} ran longer than ${options.timeoutMs} ms`)
    if (status !== 0) throw new ImageFault('tool_failed', `${argv.join(' ')}: status ${status}\n${tail(stderr)}`)
    if (stdout.length > outputCharsMax) throw new ImageFault('tool_failed', `${name} printed too much`)
    return stdout
  } finally {
    clearTimeout(deadline)
  }
}

const toolPath = '/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/apt:/usr/local/bin'
const toolEnv = { PATH: toolPath, LC_ALL: 'C.UTF-8', LANG: 'C.UTF-8', TZ: 'UTC', HOME: '/nonexistent' } as const

function tail(text: string): string {
  return text.length <= errorCharsShown ? text : `…${text.slice(-errorCharsShown)}`
}
