// Goal: the worker's command and sandbox, which are admitted and attested.

import { expect, test } from 'bun:test'
import { restartDelayMs, workerCommand, workerSandbox } from '../../../src/inference/worker/command.plan.ts'
import { modelDigest, settings, sha256 } from '../../rigs/gateway/worker-bench.ts'

const places = { root: '/state/root', socketDir: '/state/worker', user: { uid: 1, gid: 2 }, modelDigest }

// Goal: what is admitted and attested cannot change by accident.
test('the effective command', () => {
  // SHA-256 of "abc", FIPS 180-2, appendix B.1.
  const abc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
  expect(workerCommand({ ...settings('/x'), model: 'a b' }, sha256('abc'))).toEqual([
    ...['/usr/bin/llama-server', '--model', `/model/sha256-${abc}.gguf`, '--alias', 'a b'],
    ...['--host', '/run/worker/worker.sock', '--ctx-size', '8192', '--parallel', '4', '--threads', '2'],
    ...['--threads-http', '8', '--cache-ram', '0', '--log-verbosity', '1'],
    ...['--no-cache-prompt', '--no-kv-unified', '--no-slots', '--no-ui', '--offline'],
  ])
})

// Goal: the sandbox shows the model and the socket's directory, and only the latter can be written.
test('what it sees of the host', () => {
  const { mounts, root, user } = workerSandbox(settings('/x'), places)
  expect({ root, user }).toEqual({ root: '/state/root', user: places.user })
  const bound = mounts.flatMap(mount => (mount.kind === 'bind' ? [[mount.source, mount.writable]] : []))
  expect(bound).toEqual([
    ['/state/worker', true],
    ['/x/model.gguf', false],
  ])
})

// Goal: the command names the path where the sandbox mounts the model, so the attested digest is of the model served.
test('the model lies where the command says', () => {
  const command = workerCommand(settings('/x'), modelDigest)
  const mount = workerSandbox(settings('/x'), places).mounts.find(
    mount => mount.kind === 'bind' && mount.source === '/x/model.gguf',
  )
  expect(mount?.target).toBe(command[command.indexOf('--model') + 1] ?? '')
})

// Goal: the bound of the configuration is the sandbox's, and 0 is none.
test('memory', () => {
  const limitsOf = (memory_mib_max: number) => workerSandbox({ ...settings('/x'), memory_mib_max }, places).limits
  expect([0, 1, 8192].map(bound => limitsOf(bound).memoryMiBMax)).toEqual(['any', 1, 8192])
  // Each request and each CPU thread has room.
  expect(limitsOf(0).tasksMax).toBe(280)
})

// Goal: restarts get rarer and stay bounded.
test('pauses double up to half a minute', () => {
  const pauses = [1, 2, 3, 4, 5, 6, 7, 8, 1_000_000].map(restartDelayMs)
  expect(pauses).toEqual([500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000])
})
