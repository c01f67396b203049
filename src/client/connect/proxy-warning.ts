// Warns of a proxy in the environment, which would receive unencrypted what agents send to loopback. Pure.

const PROXY_VARIABLES = ['HTTP_PROXY', 'http_proxy', 'ALL_PROXY', 'all_proxy'] as const

/** Returns the warning; null if no proxy is set, or `hostname` is exempt from it. */
export function proxyWarning(env: Readonly<Record<string, string | undefined>>, hostname: string): string | null {
  const variable = PROXY_VARIABLES.find(name => (env[name] ?? '') !== '')
  if (variable === undefined) return null
  const excepted = `${env.NO_PROXY ?? ''},${env.no_proxy ?? ''}`.split(',').map(name => name.trim())
  if (excepted.includes(hostname) || excepted.includes('*')) return null
  return `${variable} is set: agents would send prompts and keys to that proxy unencrypted. Set NO_PROXY=${hostname} for them, too.`
}
