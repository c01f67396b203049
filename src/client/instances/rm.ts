// strongroom rm: deletes an instance and the name for it. Effects: the network, files.

import { type Command, helpText, type Run } from '../../terminal/command.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { clientConfigHelp, loadClientDefaults } from '../client-config.ts'
import { forgetKnownHost } from '../known-hosts.ts'
import { addServiceOptions, readService, type ServiceOptions } from '../verify/service-options.ts'
import { localNames } from './names.ts'
import { createService } from './service.ts'
import { refuseOtherService, resolveTarget, targetWord } from './target.ts'

type RmOptions = ServiceOptions & { yes?: boolean }

export function addRm(program: Command): void {
  const command = program
    .command('rm')
    .description('delete an instance with all that is in it, and forget its name')
    .argument('<name>', 'a name of `strongroom ls`, or a whole host name', targetWord)
    .option('--yes', 'do not ask')
  addServiceOptions(command)
    .addHelpText('after', `${clientConfigHelp}${helpText('strongroom rm work', 'strongroom rm k3v9x2ma --yes')}`)
    .runs(remove)
}

async function remove(run: Run, word: string, { yes = false, ...options }: RmOptions): Promise<void> {
  const { env } = run.io
  const source = readService(env, options, await loadClientDefaults(env))
  const service = createService(source)
  const names = localNames(env)
  const begun = names.find(word)
  if (begun?.hostname === null) {
    refuseOtherService(word, begun, source.api.origin)
    names.forget(word)
    const text = `${word}: forgotten. Its creation did not finish; if \`strongroom ls\` shows an instance without a name, it may be that one.\n`
    return await run.result({ name: word, instance: null, status: null }, text)
  }
  const target = await resolveTarget(word, { names, api: source.api.origin, service: () => service })
  const { instance, localName } = target
  if (!yes) await confirmed(run, localName === null ? instance.hostname : `${localName} (${instance.hostname})`)
  const record = await service.remove(instance.name)
  if (record !== null && record.hostname !== instance.hostname) {
    throw new AdvisedFault(
      'internal',
      `${service.host} deleted ${record.hostname}, which is not ${instance.hostname}`,
      {
        remedy: 'look at `strongroom ls`: this service contradicts itself',
      },
    )
  }
  await names.alone(() => forgetKnownHost(names.knownHosts, instance.hostname))
  if (localName !== null) names.forget(localName)
  if (record === null) throw missing(service.host, instance.hostname, localName)
  const text = `${instance.hostname} is ${record.status}; nothing in it can be recovered\n`
  await run.result({ name: localName, instance: instance.name, status: record.status }, text)
}

/** Waits for a person's yes. Throws Fault invalid_request without it. */
async function confirmed({ io }: Run, what: string): Promise<void> {
  if (io.ask === undefined) {
    throw new InputFault(`there is no terminal to confirm that ${what} is to be deleted`, {
      param: 'yes',
      remedy: 'add --yes',
    })
  }
  const answer = await io.ask(`Delete ${what} and everything in it? [y/N] `)
  if (/^\s*y(?:es)?\s*$/i.test(answer ?? '')) return
  throw new InputFault('nothing was deleted', { param: 'yes', remedy: 'answer y to delete it' })
}

function missing(host: string, hostname: string, localName: string | null): AdvisedFault {
  const forgotten = localName === null ? '' : `; the name ${localName} is forgotten`
  return new AdvisedFault('not_found', `${host} has no instance ${hostname} for this key${forgotten}`, {
    remedy: 'check the key, and that --api is the appliance of the instance',
  })
}
