// The steps of an operator after `strongroom init`, from the configuration and the running service. Pure.

import { servedModels } from '../../config/checks/worker.ts'
import type { Config } from '../../config/schema.ts'
import type { AdminStatus } from '../../contract/admin/admin.ts'

type Facts = { readonly config: Config; readonly status: AdminStatus; readonly organization: string | null }

/** One line each, the most pressing first. */
export function nextSteps({ config, status, organization }: Facts): string[] {
  const { network, domain, listen, tls, instances } = config
  const address = network.public_v4 || network.public_v6 || 'this host'
  const hasModel = servedModels(config).size > 0 || instances.inference_base_url !== ''
  return [
    ...status.problems.map(({ name, severity, detail, remedy }) => {
      const word = severity === 'critical' ? 'not ready' : 'warning'
      return `${word}: ${name}: ${detail}; ${remedy}`
    }),
    ...(status.evidence_simulated
      ? ['evidence is SIMULATED on this host and must not be trusted; `strongroom doctor` lists what SEV-SNP needs']
      : []),
    ...(listen.dns === '' ? [] : [`delegate ${domain} to ns.${domain} at ${address}`]),
    ...[network.pool_v4, network.pool_v6].flatMap(pool => (pool === '' ? [] : [`route ${pool} to ${address}`])),
    ...(listen.inference === '' || hasModel
      ? []
      : ['prompts fail: the gateway has no model: strongroom upstream add URL, or strongroom help gateway']),
    ...(tls.certificate_file === ''
      ? [`give clients the authority ${status.tls.ca_file ?? ''}, or set tls.certificate_file`]
      : []),
    'publish what `strongroom operator-key` prints, and manifest.json of each image: clients pin both',
    ...(organization === null
      ? ['enter the fleet: strongroom fleet join (strongroom help fleet)']
      : [
          `register a key that ${organization} made by \`strongroom key new\`: strongroom key add ${organization} LINE; or mint one: strongroom key create ${organization}`,
        ]),
    ...(listen.inference === '' || organization === null
      ? []
      : [
          `and for the gateway, by \`strongroom gateway key new\`: strongroom gateway key add ${organization} LINE; or mint one: strongroom gateway key create ${organization}`,
        ]),
    'keep a backup: strongroom help backup',
  ]
}
