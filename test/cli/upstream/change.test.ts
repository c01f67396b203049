// Goal: a change that stops the prompts of running instances names them and the command of their owners, and is made
// only after a yes.

import { expect, test } from 'bun:test'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { failure } from '../../../scripts/rigs/until.ts'
import { writeConfigText } from '../../../src/cli/config-write.driver.ts'
import type { Run } from '../../../src/cli/operator-run.ts'
import { type ChangeOptions, changeUpstreams, orKeepFormer } from '../../../src/cli/upstream/change.ts'
import { type NewUpstream, withUpstream } from '../../../src/cli/upstream/entry.ts'
import { parseConfig } from '../../../src/config/parse.ts'

const attested = '[inference.worker]\nmodel_disk = "d"\nmodel = "inside"\n'
const added: NewUpstream = {
  ...{ name: 'rack', url: 'http://10.0.0.5/v1', engine: 'vllm', model: 'big', isEmbedding: false, contextTokens: null },
  ...{ keyFile: null, caFile: null, price: { prompt: '0', completion: '0' } },
}

type Scene = { readonly text?: string; readonly answer?: string; readonly instances?: readonly string[] | null }

async function change(
  { text = attested, answer, instances = ['ready', 'failed', 'provisioning'] }: Scene,
  options: Partial<ChangeOptions> = {},
) {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-change-'))
  const file = join(directory, 'strongroom.toml')
  writeFileSync(file, text)
  const parsed = parseConfig(text, file)
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems))
  const source = { text, config: parsed.config, file }
  let printed = ''
  const stderr = async (more: string) => {
    printed += more
  }
  const request = async () => {
    if (instances === null) throw new Error('no daemon')
    return {
      instances: instances.map((status, at) => ({ organization: 'acme', name: `${status}-${at}`, status })),
      more: false,
    }
  }
  const run = {
    io: { stderr, ...(answer === undefined ? {} : { ask: async () => answer }) },
    hint: stderr,
    result: async (_document: unknown, words: string) => stderr(words),
    client: () => ({ request }),
  } as unknown as Run
  const doing = changeUpstreams(run, source, {
    verdict: withUpstream(source, added),
    accept: ['rack=http://10.0.0.5'],
    options: { restart: false, ...options },
  })
  const error = await doing.then(
    () => null,
    (found: Error) => found,
  )
  const isWritten = readFileSync(file, 'utf8') !== text
  rmSync(directory, { recursive: true })
  return { error, printed, isWritten }
}

test('goal: without a person it refuses, with the instances and the command of their owners', async () => {
  const { error, isWritten } = await change({})
  expect(error).toMatchObject({ code: 'conflict', remedy: expect.stringContaining('--yes') })
  expect(error?.message).toContain('2 instances (acme/ready-0, acme/provisioning-2)')
  expect(error?.message).toContain('strongroom-gateway accept SHA256 rack=http://10.0.0.5')
  expect(isWritten).toBe(false)
})

test('goal: a person says yes; anything else changes nothing; --yes asks nobody', async () => {
  for (const answer of ['', 'no', 'y']) expect([answer, (await change({ answer })).isWritten]).toEqual([answer, false])
  const agreed = await change({ answer: ' YES ' })
  expect([agreed.error, agreed.isWritten]).toEqual([null, true])
  expect(agreed.printed).toContain('acme/ready-0')
  const forced = await change({}, { yes: true })
  expect([forced.error, forced.isWritten]).toEqual([null, true])
})

test('goal: nobody is asked where no instance stops; an unknown list counts as some', async () => {
  for (const scene of [
    { instances: [] },
    { instances: ['failed'] },
    { text: '' },
    { text: '[inference]\nplacement = "host"\n' },
  ]) {
    expect([scene, (await change(scene)).isWritten]).toEqual([scene, true])
  }
  expect((await change({ instances: null })).error?.message).toContain('the daemon does not answer')
})

test('goal: a dry run lists them and writes nothing', async () => {
  const { error, printed, isWritten } = await change({}, { dryRun: true })
  expect([error, isWritten]).toEqual([null, false])
  expect(printed).toContain('acme/ready-0')
  expect(printed).toContain('nothing was changed')
})

test('goal: a file that another program changed meanwhile is not overwritten', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-change-'))
  const file = join(directory, 'f')
  writeFileSync(file, 'a')
  const changed = failure((async () => writeConfigText(file, { before: 'b', after: 'c' }))())
  expect(await changed).toMatchObject({ code: 'conflict' })
  expect(readFileSync(file, 'utf8')).toBe('a')
  rmSync(directory, { recursive: true })
})

test('goal: the former text is kept and named if the service does not start with the new one, and only then', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-change-'))
  const file = join(directory, 'strongroom.toml')
  const hints: string[] = []
  const run = { hint: async (text: string) => void hints.push(text) }
  await orKeepFormer(run, { text: 'former', file }, async () => 'started')
  expect([hints, existsSync(`${file}.before`)]).toEqual([[], false])
  const failing = async () => {
    throw new Error('the service does not answer')
  }
  expect(await failure(orKeepFormer(run, { text: 'former', file }, failing))).toMatchObject({
    message: expect.stringContaining('does not answer'),
  })
  expect([readFileSync(`${file}.before`, 'utf8'), hints]).toEqual([
    'former',
    [expect.stringContaining(`${file}.before`)],
  ])
  rmSync(directory, { recursive: true })
})
