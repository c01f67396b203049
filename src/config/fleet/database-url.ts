// The address of the fleet's database, `postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE`. Pure.

export type DatabaseAddress = {
  /** A name, an IP address without brackets, or the absolute path of a directory with a unix socket. */
  readonly host: string
  readonly port: number
  readonly user: string
  readonly password: string | null
  readonly database: string
}

const portDefault = 5432

export type DatabaseUrl =
  | { readonly ok: true; readonly address: DatabaseAddress }
  | { readonly ok: false; readonly problem: string }

/** `host` as a parameter names the directory of a unix socket, as libpq has it. */
export function parseDatabaseUrl(text: string): DatabaseUrl {
  const refuse = (problem: string): DatabaseUrl => ({ ok: false, problem })
  const url = URL.parse(text)
  if (url === null || !['postgres:', 'postgresql:'].includes(url.protocol)) {
    return refuse('must be postgres://USER@HOST[:PORT]/DATABASE')
  }
  const unknown = [...url.searchParams.keys()].find(name => name !== 'host')
  if (unknown !== undefined) {
    return refuse(`has the parameter ${unknown}; TLS and its authority are set by fleet.ca_file, the rest is built in`)
  }
  const directory = url.searchParams.get('host')
  if (directory !== null && !directory.startsWith('/')) return refuse('host= must be the path of a socket directory')
  const host = directory ?? url.hostname.replace(/^\[|\]$/g, '')
  if (host === '') return refuse('names no host')
  const [user, database] = [decoded(url.username), decoded(url.pathname.slice(1))]
  if (user === null || user === '') return refuse('names no user: each host has a database role of its own')
  if (database === null || database === '' || database.includes('/')) return refuse('names no database')
  const password = decoded(url.password)
  if (password === null) return refuse('has a password with a broken percent escape')
  const port = url.port === '' ? portDefault : Number(url.port)
  return { ok: true, address: { host, port, user, password: password === '' ? null : password, database } }
}

/** Whether the connection is private on the network. */
export function isLocalDatabase({ host }: Pick<DatabaseAddress, 'host'>): boolean {
  return host.startsWith('/') || host === 'localhost' || host === '::1' || /^127\./.test(host)
}

/** Without its password. */
export function databaseText({ host, port, user, database }: Omit<DatabaseAddress, 'password'>): string {
  if (host.startsWith('/')) return `postgres://${user}@localhost:${port}/${database}?host=${host}`
  return `postgres://${user}@${host.includes(':') ? `[${host}]` : host}:${port}/${database}`
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text)
  } catch {
    return null
  }
}
