import { createAppliance } from '../rigs/appliance.ts'
import { createModelFile, gatewayTables } from '../rigs/gateway/appliance-gateway.ts'
import { servingGatewayVm } from '../rigs/gateway/serving-gateway-vm.ts'
import { qemuProcesses } from '../rigs/leftovers.ts'
import { createNetns } from '../rigs/netns.ts'
import { cpuPercent } from './boot/process-time.ts'
if (process.argv[2] === 'outer') {
  using netns = createNetns()
  const child = Bun.spawn(netns.argv([process.execPath, import.meta.path, ...process.argv.slice(3)]), { stdin: 'ignore', stdout: 'inherit', stderr: 'inherit' })
  process.exit(await child.exited)
}
const [image = ''] = process.argv.slice(2)
using file = createModelFile()
const tables = (await gatewayTables(file.path, 'vm')).replace(/image_dir = .*/, `image_dir = ${JSON.stringify(image)}`)
await using appliance = await createAppliance('', 'vm', '/tmp/rest47-img/new', tables)
await appliance.start()
await servingGatewayVm(appliance)
const [pid = 0] = qemuProcesses(appliance.stateDir)
await Bun.sleep(45_000)
for (let i = 0; i < 3; i += 1) console.log(image, 'rest %', await cpuPercent(pid, 20_000))
await appliance.stop()
