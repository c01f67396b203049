// strongroom fleet share: hands the secrets of one host to another, sealed to a key that the evidence of the other
// one attests. Effects: files, the gateway of this host, the database of the fleet.

import { resolve } from 'node:path'
import { addPinOptions } from '../../../client/trust/pin-options.ts'
import { addPolicyFlags } from '../../../client/trust/policy-flags.ts'
import { addEvidenceOptions } from '../../../client/trust/trust-options.ts'
import type { Command, Run } from '../../operator-run.ts'
import type { SealOptions } from './seal.ts'

export function addShare(fleet: Command): void {
  const share = fleet
    .command('share')
    .description('copy the operator key, control key and authority of one host to another: request, seal, open')
    .examples(
      'strongroom fleet share request rack-2.request',
      'strongroom fleet share seal rack-2.request rack-2.sealed --policy policy.json',
      'strongroom fleet share open rack-2.sealed --operator-key operator-key.pub.pem',
    )
  share
    .command('request')
    .description(
      'on the host that needs the secrets: make a key and a request with the evidence of the gateway VM of this host; the service must run. Valid for an hour',
    )
    .argument('<file>', 'file to write; it contains no secret')
    .examples('strongroom fleet share request rack-2.request')
    .runs(async (run: Run, file: string) => {
      const { request } = await import('./request.ts')
      await request(run, resolve(file))
    })
  const seal = share
    .command('seal')
    .description('on the host that has the secrets: verify a request, and seal the secrets of this host to it')
    .argument('<request>', 'the request')
    .argument('<file>', 'file to write; only the other host can open it')
    .option(
      '--policy <file>',
      'JSON as in `verify policy-schema`; it names the measurements and the operator key there',
    )
  addPinOptions(addEvidenceOptions(addPolicyFlags(seal)), ['measurement', 'vmpl', 'crl', 'tcb'])
  seal
    .examples(
      'strongroom fleet share seal rack-2.request rack-2.sealed --policy policy.json',
      'strongroom fleet share seal rack-2.request rack-2.sealed --policy policy.json --chip-id HEX',
    )
    .runs(async (run: Run, path: string, file: string, options: SealOptions) => {
      const { seal } = await import('./seal.ts')
      await seal(run, { path, file: resolve(file), options })
    })
  share
    .command('open')
    .description(
      'on the host that made the request, with the service stopped: install the secrets; the former ones are kept in `share/` of the state directory',
    )
    .argument('<file>', 'the sealed file')
    .requiredOption(
      '--operator-key <key>',
      'file of `strongroom operator-key` of the other host, or its digest: any other sealed file is refused',
    )
    .examples('strongroom fleet share open rack-2.sealed --operator-key operator-key.pub.pem')
    .runs(async (run: Run, path: string, options: { readonly operatorKey: string }) => {
      const { open } = await import('./open.ts')
      await open(run, path, options.operatorKey)
    })
}
