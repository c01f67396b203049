import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { agentInputsFile, findAgentInputs } from '../../scripts/lib/agent-inputs.ts'
import { root } from './tree.ts'

// Goal: nothing comes into the measured executable, and nothing leaves it, without a line in review.
test('the measured executable is made of what is listed', async () => {
  const listed = JSON.parse(readFileSync(join(root, agentInputsFile), 'utf8'))
  const found = await findAgentInputs(root)
  const added = found.files.filter(path => !listed.files.includes(path))
  const gone = listed.files.filter((path: string) => !found.files.includes(path))
  expect({ added, gone, update: 'bun scripts/agent-inputs.ts --write' }).toEqual({
    added: [],
    gone: [],
    update: 'bun scripts/agent-inputs.ts --write',
  })
  expect(found.packages).toEqual(listed.packages)
})

// Goal: the list says something: the agent's own files are on it, and nothing of the host is.
test('the list holds the guest and nothing of the host', () => {
  const { files } = JSON.parse(readFileSync(join(root, agentInputsFile), 'utf8'))
  expect(files).toContain('src/guest/main.ts')
  expect(files).toContain('src/guest/evidence.ts')
  const rooms = new Set(files.map((path: string) => path.split('/').slice(0, 2).join('/')))
  expect([...rooms].toSorted()).toEqual([
    'package.json',
    'src/attest',
    'src/base',
    'src/contract',
    'src/guest',
    'src/linux',
    'src/verifier',
  ])
})
