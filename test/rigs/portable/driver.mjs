// Runs the bundled suite in the runtime that starts it, Bun or Node: driver.mjs MODULE [bare]. Input on standard input, results on standard output.
// With `bare` (Node, --experimental-vm-modules) the module sees a global object with nothing but what web.d.ts names.

import { readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import vm from 'node:vm'

const [path, mode] = process.argv.slice(2)
const { runSuite } = mode === 'bare' ? await bareModule(path) : await import(pathToFileURL(path).href)
process.stdout.write(await runSuite(readFileSync(0, 'utf8')))

async function bareModule(file) {
  // Bytes come from this realm's WebCrypto and TextEncoder, so `instanceof` has to mean this realm's classes.
  const names = ['crypto', 'TextEncoder', 'TextDecoder', 'atob', 'btoa', 'Uint8Array', 'ArrayBuffer']
  const globals = Object.fromEntries(names.map(name => [name, globalThis[name]]))
  const context = vm.createContext(globals, { codeGeneration: { strings: false, wasm: false } })
  const module = new vm.SourceTextModule(readFileSync(file, 'utf8'), { context })
  await module.link(specifier => {
    throw new Error(`the bundle imports ${specifier}`)
  })
  await module.evaluate()
  return module.namespace
}
