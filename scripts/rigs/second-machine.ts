// A second machine's network beside the namespace that this process is in, and a cable between the two. Effects: a
// namespace, links, routes; needs root. All of it ends with the two namespaces.

import { createNetns, type Netns } from './netns.ts'

export const [eastAddress, westAddress] = ['10.99.0.1', '10.99.0.2']
/** Addresses of the second machine's VMs. */
export const westPool = '10.89.0.0/16'

function ip(...argv: string[]): void {
  const { exitCode, stderr } = Bun.spawnSync(['ip', ...argv])
  if (exitCode !== 0) throw new Error(`ip ${argv.join(' ')}: ${stderr.toString()}`)
}

export async function secondMachine(): Promise<Netns> {
  const west = createNetns()
  ip('link', 'add', 'cable', 'type', 'veth', 'peer', 'name', 'cable', 'netns', west.name)
  ip('address', 'add', `${eastAddress}/24`, 'dev', 'cable')
  ip('link', 'set', 'dev', 'cable', 'up')
  ip('route', 'add', westPool, 'via', westAddress)
  await west.run(['ip', 'address', 'add', `${westAddress}/24`, 'dev', 'cable'])
  await west.run(['ip', 'link', 'set', 'dev', 'cable', 'up'])
  await west.run(['ip', 'route', 'add', 'default', 'via', eastAddress])
  return west
}
