// @peculiar/x509 in browsers, Bun and Node, bundled or not. Effects: fills in `Reflect` before the library is loaded.
//
// The library registers its classes through a container that asks for three Reflect functions while it loads; plain
// storage per target is all there is to it. It is loaded on first use by `import()`: a static import would run before
// the functions are there, and a top-level `await` would keep bundlers from putting this into one script. Verification
// does without the library; only makers of certificates load it.

type X509 = typeof import('@peculiar/x509')

let loading: Promise<X509> | null = null

/** The library, loaded once. */
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
