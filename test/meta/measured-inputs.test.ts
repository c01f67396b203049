import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { brokerEntry } from '../../scripts/build/broker-bundle.ts'
import { builderRecipe, enclaveRecipe, guestRecipe } from '../../scripts/build/recipes.ts'
import { findInputs, MEASURED } from '../../scripts/lib/measured-inputs.ts'
import { root } from './tree.ts'

const update = 'bun scripts/measured-inputs.ts --write'
const recipes = [guestRecipe, { name: 'strongroom-broker', entry: brokerEntry }, builderRecipe, enclaveRecipe]

// Goal: nothing comes into a measured executable, and nothing leaves it, without a line in review.
test.each(Object.entries(MEASURED))('%s is made of what is listed', async (_, { entry, file }) => {
  const listed = JSON.parse(readFileSync(join(root, file), 'utf8'))
  const found = await findInputs(root, entry)
  const added = found.files.filter(path => !listed.files.includes(path))
  const gone = listed.files.filter((path: string) => !found.files.includes(path))
  expect({ added, gone, update }).toEqual({ added: [], gone: [], update })
  expect(found.packages).toEqual(listed.packages)
})

// Goal: no executable is measured without a list.
test('every executable that an image holds is listed', () => {
  expect(recipes.map(({ name, entry }) => [name, entry])).toEqual(
    Object.entries(MEASURED).map(([name, { entry }]) => [name, entry]),
  )
})

// Goal: the list says something: the agent's own files are on it, and nothing of the host is.
test('the list holds the guest and nothing of the host', () => {
  const { files } = JSON.parse(readFileSync(join(root, MEASURED['strongroom-guest'].file), 'utf8'))
  expect(files).toContain('src/guest-main.ts')
  expect(files).toContain('src/guest/evidence.ts')
  expect(roomsOf(files)).toEqual([
    'package.json',
    'src/attest',
    'src/base',
    'src/contract',
    'src/guest',
    'src/guest-main.ts',
    'src/linux',
    'src/verifier',
  ])
})

// Goal: what programs of an instance reach is decided without the agent, a verifier or the host.
test('the list of the broker holds no other program', () => {
  const { files, packages } = JSON.parse(readFileSync(join(root, MEASURED['strongroom-broker'].file), 'utf8'))
  const rooms = ['src/base', 'src/broker', 'src/broker-main.ts', 'src/contract', 'src/linux']
  expect([roomsOf(files).filter(room => room !== 'src/attest'), packages]).toEqual([rooms, {}])
})

// Goal: no line of a verifier or of an instance's endpoint is trusted in a build.
test('the list holds the builder, and of the guest what serves the channel and attests', () => {
  const { files } = JSON.parse(readFileSync(join(root, MEASURED['strongroom-builder'].file), 'utf8'))
  expect(files).toContain('src/builder/run-build.ts')
  expect(files.filter((path: string) => path.startsWith('src/guest/gateway/'))).toEqual([])
})

// Goal: the gateway's VM holds the gateway, and nothing that starts VMs, sells them or keeps their books.
test('the list holds the gateway and nothing of the other services', () => {
  const { files } = JSON.parse(readFileSync(join(root, MEASURED['strongroom-enclave'].file), 'utf8'))
  expect(files).toContain('src/enclave/boot.ts')
  expect(files).toContain('src/enclave/serve.ts')
  const others = roomsOf(files).filter(room => !enclaveRecipe.sources.includes(room))
  expect(others).toEqual(['package.json'])
  const apart = ['src/vm', 'src/instances', 'src/builds', 'src/operator', 'src/appliance', 'src/cli', 'src/client']
  for (const room of apart) {
    expect(enclaveRecipe.sources).not.toContain(room)
  }
})

function roomsOf(files: readonly string[]): string[] {
  return [...new Set(files.map(path => path.split('/').slice(0, 2).join('/')))].toSorted()
}
