// Goal: programs of the owner's fill their own file system below /run and nothing else there: root still writes what an
// order needs, and the owner's document fits beside the one that it replaces.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { expectationBytesMax } from '../../../src/guest/gateway/expectation.codec.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { run } from '../../../src/linux/command.ts'

const script = new URL('../../../guest-image/recipes/instance/root/usr/lib/strongroom/sessions', import.meta.url)
/** The function of the image's script that makes the directory. */
const [making = ''] = /^make_own_gateway\(\) \{\n[^}]*\n\}$/m.exec(readFileSync(script, 'utf8')) ?? []
const { ownGatewayDir, ownGateway, brokerState } = guestPaths('')

/** Runs it beside a /run as init makes it. */
const inRun = async (text: string) =>
  (
    await run(
      [
        ...['unshare', '--mount', '--propagation=private', 'sh', '-ec'],
        `mount -t tmpfs -o nosuid,nodev,mode=0755,size=16m tmpfs /run
mkdir -m 0755 /run/strongroom
${making}
login=1000
make_own_gateway
as_owner() { setpriv --reuid=1000 --regid=1000 --clear-groups "$@"; }
full() { ! "$@" 2>/dev/null || { echo 'it is not full'; exit 1; }; }
${text}`,
      ],
      { timeoutMs: 60_000, outputBytesMax: 65_536 },
    )
  ).stdout

test('goal: 64 MiB and 10,000 files of the owner leave root what an order needs', async () => {
  const text = await inRun(`
full as_owner dd if=/dev/zero of=${ownGatewayDir}/a bs=64k count=1000
full as_owner sh -c 'cd ${ownGatewayDir} && for at in $(seq 10000); do : >$at || exit 1; done'
dd if=/dev/zero of=${brokerState} bs=1M count=8 2>/dev/null
ls ${ownGatewayDir} | wc -l
stat --format=%s ${ownGatewayDir}/a`)
  const [files = '', bytes = ''] = text.trim().split('\n')
  expect([Number(files) < 32, Number(bytes) <= 262_144]).toEqual([true, true])
})

test('goal: the largest document is replaced as the program of the owner does it', async () => {
  const largest = `dd if=/dev/zero bs=${expectationBytesMax} count=1 2>/dev/null`
  const write = `as_owner sh -ec '${largest} >${ownGateway}.new; mv ${ownGateway}.new ${ownGateway}'`
  const text = await inRun(`${write}\n${write}\n${write}\nstat --format=%s:%u ${ownGateway}`)
  expect(text).toBe(`${expectationBytesMax}:1000\n`)
})
