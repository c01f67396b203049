// Loads @peculiar/x509 in browsers, Bun and Node, bundled or not. Effects: extends `Reflect` before loading the
// library.
//
// While loading, the library registers its classes through a container that needs three Reflect functions, for which
// plain storage per target suffices. It is loaded on first use by `import()`: a static import would run before the
// functions exist, and a top-level `await` would keep bundlers from producing a single script. Verification does not
// need the library; only creating certificates does.

type X509 = typeof import('@peculiar/x509')

let loading: Promise<X509> | null = null

/** Returns the library, loading it once. */
export function loadX509(): Promise<X509> {
  loading ??= load()
  return loading
}

async function load(): Promise<X509> {
  if (!Reflect.has(Reflect, 'getMetadata')) {
    Object.assign(Reflect, { getMetadata: get, getOwnMetadata: get, defineMetadata: define })
  }
  return await import('@peculiar/x509')
}

const stored = new WeakMap<object, Map<unknown, unknown>>()

function get(key: unknown, target: object): unknown {
  return stored.get(target)?.get(key)
}

function define(key: unknown, value: unknown, target: object): void {
  const own = stored.get(target) ?? new Map<unknown, unknown>()
  stored.set(target, own.set(key, value))
}
