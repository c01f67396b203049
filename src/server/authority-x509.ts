// @peculiar/x509 with the three Reflect functions that its container asks for at load time. Effects: fills in `Reflect`.
//
// The library registers classes without decorators of its own, so plain storage per target is all there is to it. It is loaded
// by `import()`, because Bun runs a CommonJS dependency before the statements of the module that imports it.

const stored = new WeakMap<object, Map<unknown, unknown>>()

const get = (key: unknown, target: object): unknown => stored.get(target)?.get(key)

const define = (key: unknown, value: unknown, target: object): void => {
  const own = stored.get(target) ?? new Map<unknown, unknown>()
  stored.set(target, own.set(key, value))
}

if (!Reflect.has(Reflect, 'getMetadata')) {
  Object.assign(Reflect, { getMetadata: get, getOwnMetadata: get, defineMetadata: define })
}

export const x509 = await import('@peculiar/x509')
