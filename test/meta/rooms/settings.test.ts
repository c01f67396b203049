// Goal: a setting is named in four files at most on its way to a consumer: its table in the configuration, the
// appliance, the type of the settings value, and the consumer. Files between them pass the value on.

import { expect, test } from 'bun:test'
import { GatewaySettings } from '../../../src/contract/vm/workload.ts'
import { readTree } from '../tree.ts'

type SettingsValue = {
  readonly file: string
  readonly members: readonly string[]
  readonly room: string
  /** Names of other things, with the files that declare them. */
  readonly others: Readonly<Record<string, readonly string[]>>
}

const dns = ['dns/responder.ts', 'dns/server.ts', 'dns/thread.ts', 'dns/zone.plan.ts']
/** The handler of requests, and the limits of a request's body. */
const ofHttp = { fetch: ['builds.ts'], limits: ['http/routes.ts'] }
/** The cache of receipts, and spans that wait for a collector. */
const ofGateway = {
  keptReceipts: ['gateway/gateway.ts', 'gateway/receipts.ts', 'relay/relay-owner.ts', 'service.ts'],
  queueMax: ['traces/exporter.ts'],
}

const VALUES: Readonly<Record<string, SettingsValue>> = {
  BuildsSettings: settingsIn('src/builds', 'types.ts', ofHttp),
  InstancesSettings: settingsIn('src/instances', 'service.ts', { domain: dns }),
  GatewaySettings: {
    file: 'src/contract/vm/workload.ts',
    members: Object.keys(GatewaySettings.properties),
    room: 'src/inference',
    others: ofGateway,
  },
}

function settingsIn(room: string, name: string, others: SettingsValue['others']): SettingsValue {
  const file = `${room}/${name}`
  const text = readTree(file).get(file) ?? ''
  const body = /export type \w+Settings = \{\n([^}]*)\}/.exec(text)?.[1] ?? ''
  return {
    file,
    members: [...body.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, member = '']) => member),
    room,
    others,
  }
}

/**
 * Members that a file between the value and its consumer names: more than one file declares them again, or one hands
 * them on by name.
 */
function longWays({ file, members, room, others }: SettingsValue, tree: ReadonlyMap<string, string>): string[] {
  return members.flatMap(member => {
    const files = [...tree].filter(([path]) => path.startsWith(`${room}/`) && path !== file)
    const declaring = files.filter(([path, text]) => {
      const isOther = others[member]?.some(other => path === `${room}/${other}`) === true
      return !isOther && new RegExp(`^\\s*readonly ${member}\\??:`, 'm').test(text)
    })
    const handing = files.filter(([, text]) =>
      new RegExp(`\\b${member}: [\\w.]*(settings|limits)\\.${member}\\b`).test(text),
    )
    const paths = [...(declaring.length > 1 ? declaring : []), ...handing].map(([path]) => path)
    return paths.length === 0 ? [] : [`${member}: ${[...new Set(paths)].sort().join(', ')}`]
  })
}

const tree = readTree('src/{builds,instances,inference}/**/*.ts')

test.each(Object.keys(VALUES))('goal: a member of %s is named by its consumers alone', name => {
  const value = VALUES[name] as SettingsValue
  expect(value.members.length).toBeGreaterThan(4)
  expect(longWays(value, tree)).toEqual([])
})

test('goal: a member that is declared twice, or handed on by name, is found', () => {
  const value = { file: 'src/a/types.ts', members: ['queueMax'], room: 'src/a', others: { queueMax: ['other.ts'] } }
  const declared = 'type Deps = {\n  readonly queueMax: number\n}'
  const found = (files: Readonly<Record<string, string>>) => longWays(value, new Map(Object.entries(files)))
  const consumer = { 'src/a/types.ts': declared, 'src/a/queue.ts': declared, 'src/a/other.ts': declared }
  expect(found(consumer)).toEqual([])
  expect(found({ ...consumer, 'src/a/service.ts': declared })).toEqual(['queueMax: src/a/queue.ts, src/a/service.ts'])
  const handed = 'new Queue({ queueMax: deps.settings.queueMax })'
  expect(found({ ...consumer, 'src/a/service.ts': handed })).toEqual(['queueMax: src/a/service.ts'])
  expect(found({ ...consumer, 'src/a/service.ts': 'nth: settings.queueMax' })).toEqual([])
})
