// strongroom chips: the signed list of the operator's chips, for relying parties. Effects: requests to the daemon;
// writes the list.

import { InvalidArgumentError } from 'commander'
import { sha256 } from '../../attest/hash.ts'
import { chipListBytesMax, readChipList } from '../../attest/policy/chip-list.ts'
import { FIELDS } from '../../attest/report/report.ts'
import { toHex, utf8 } from '../../base/bytes.ts'
import { AdminStatus } from '../../contract/admin/admin.ts'
import { AdminChips } from '../../contract/admin/fleet.ts'
import { AdminPublishPolicy } from '../../contract/admin/log.ts'
import { pastedHex } from '../../terminal/hex.ts'
import { readInput, readingInput } from '../../terminal/input-file.ts'
import { writeOutput } from '../../terminal/output-file.ts'
import { oneLine, table } from '../../terminal/render.ts'
import type { Command, Run } from '../operator-run.ts'

export function addChips(program: Command): void {
  const chips = program
    .command('chips')
    .description("the signed list of this operator's chips, which a policy may name: export, publish")
    .examples('strongroom chips export --out chips.json')
  chips
    .command('publish')
    .description("enter a list that another host of the fleet exported into this host's transparency log")
    .argument('<file>', 'the list, signed by the operator key of this host')
    .examples('strongroom chips publish chips.json')
    .runs(async (run, path: string) => {
      const { bytes } = await readOwnList(run, path, 'file')
      const body = { sha256: toHex(sha256(bytes)) }
      const request = { method: 'POST', path: '/chips/publish', body, response: AdminPublishPolicy } as const
      await run.show(request, found => `SHA-256 of the list, in the transparency log: ${found.sha256}\n`)
    })
  chips
    .command('export')
    .description(
      'sign a list of the chips of this host, or of every host of its fleet, by the operator key, and enter it into the transparency log',
    )
    .option('--out <file>', 'write the list to this file; default: standard output')
    .option('--previous <file>', 'refuse chips that are neither in this list, which you handed out, nor in --add')
    .option('--add <chip>', 'a chip_id that you have compared, of a new host or board; repeatable', chipsGiven, [])
    .examples('strongroom chips export --out chips.json', 'strongroom chips export --previous chips.json > new.json')
    .runs(async (run, { out, previous, add }: { out?: string; previous?: string; add: readonly string[] }) => {
      const known =
        previous === undefined ? {} : { known: [...(await readOwnList(run, previous, 'previous')).chips, ...add] }
      const ask = { method: 'POST', path: '/chips/export', body: { add, ...known }, response: AdminChips } as const
      const found = await run.client().request(ask)
      const { hosts, list, sha256: digest } = found
      const rows = hosts.map(({ host, chip_id: chipId }) => [
        oneLine(host),
        chipId ??
          'absent from the list: no report yet (launch a VM there), reports of several chips (export there), or another operator key',
      ])
      const text = table(run.paint, ['HOST', 'CHIP'], rows)
      if (out !== undefined) writeOutput(out, utf8(list))
      await run.result(found, out === undefined ? list : text)
      if (out === undefined) await run.hint(text.trimEnd())
      await run.hint(`SHA-256 of the list, as in the transparency log: ${digest}`)
    })
}

/** Reads a list that the operator key of this host signed. Fault invalid_request. */
async function readOwnList(run: Run, path: string, param: string) {
  const bytes = readInput({ path, param, bytesMax: chipListBytesMax })
  const { operator_key: key } = await run.client().request({ path: '/status', response: AdminStatus })
  const { chipIds } = await readingInput(path, () => readChipList(bytes, [Uint8Array.fromHex(key.digest)]))
  return { bytes, chips: chipIds.map(toHex) }
}

/** Adds the chip of one option to those before it. */
function chipsGiven(text: string, before: readonly string[]): readonly string[] {
  const chip = pastedHex(text)
  if (chip?.length !== FIELDS.chipId[1]) throw new InvalidArgumentError('A chip_id has 64 bytes in hexadecimal.')
  return [...before, toHex(chip)]
}
