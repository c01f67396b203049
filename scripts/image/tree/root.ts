// The root file system: the Debian tree, our files, our executable, the packaged agent and modules; then one
// read-only image. Effects.

import { appendFile, chmod, cp, mkdir, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'
import { filesBelow } from '../digest.ts'
import { installBuiltinLists, installModules, type Kernel, type KernelModule } from '../kernel.ts'
import { MACHINE_PROGRAMS, type MachineRecipe, type Recipe } from '../recipe.ts'
import { runTool } from '../tool.ts'
import { loadingOrder } from './initrd.ts'
import { uuidOf } from './verity.ts'

export type RootTreeOptions = {
  readonly recipe: MachineRecipe
  readonly tree: string
  /** Tarball of the Debian part. */
  readonly base: string
  /** Directories whose files are laid over the tree, one after the other. */
  readonly overlayDirs: readonly string[]
  /** Our compiled executable. */
  readonly executable: string
  readonly kernel: Kernel
  /** Text of the broker; null in a machine without one. */
  readonly broker: string | null
  /**
   * Modules for the initrd, for init and for the packet filter, in loading order, and all but the last, which modprobe
   * does not find.
   */
  readonly modules: Readonly<Record<'scratch' | 'boot' | 'reach' | 'all', readonly KernelModule[]>>
}

/** Unpacks and completes the tree, without the packaged agent. No file in it is setuid or setgid. */
export async function layTree(options: RootTreeOptions): Promise<void> {
  const { recipe, tree } = options
  await mkdir(tree, { recursive: true, mode: 0o755 })
  const excludes = recipe.exclude.map(pattern => `--exclude=./${pattern}`)
  await runTool(
    ['tar', '--extract', '--file', options.base, '--directory', tree, '--numeric-owner', '--anchored', ...excludes],
    { timeoutMs: 300_000 },
  )
  for (const dir of options.overlayDirs) await layOver(dir, tree)
  const { executable, role } = MACHINE_PROGRAMS[recipe.program]
  await layExecutable(options.executable, join(tree, 'usr/bin', executable))
  await layImageName(recipe, tree)
  await layText(`${executable} ${role}`, join(tree, 'usr/lib/strongroom/program'))
  if (recipe.user !== undefined) await addUser(recipe, recipe.user, tree)
  for (const service of recipe.services ?? []) await addService(recipe, service, tree)
  if (options.broker !== null) await layText(options.broker, join(tree, 'usr/lib/strongroom/broker.js'))
  await addModules(options)
  for (const name of busyboxNames) await symlink('../bin/busybox', join(tree, 'usr/sbin', name))
  await dropSetuid(tree)
}

/** Statements of a guest name its image by this. */
export function layImageName({ name }: Pick<Recipe, 'name'>, tree: string): Promise<void> {
  return layText(JSON.stringify({ name }), join(tree, 'usr/lib/strongroom/image.json'))
}

export async function layExecutable(from: string, target: string): Promise<void> {
  await runTool(['cp', '--reflink=auto', from, target], { timeoutMs: 60_000 })
  await chmod(target, 0o755)
}

export async function dropSetuid(tree: string): Promise<void> {
  await runTool(['find', tree, '-type', 'f', '-perm', '/6000', '-exec', 'chmod', 'u-s,g-s', '{}', '+'], {
    timeoutMs: 30_000,
  })
}

export async function layText(text: string, target: string): Promise<void> {
  await mkdir(dirname(target), { recursive: true, mode: 0o755 })
  await writeFile(target, `${text}\n`)
  await chmod(target, 0o644)
}

// Tools of root's that Debian has in packages which would bring setuid programs or more.
const busyboxNames = ['insmod', 'lsmod', 'modprobe', 'mount', 'poweroff', 'reboot', 'rmmod', 'umount'] as const

/** One erofs image of the tree. lz4 halves it, and boots no slower: half as many bytes are hashed by dm-verity. */
export async function packTree(
  tree: string,
  inputsSha256: string,
  recipe: Pick<Recipe, 'sourceDateEpoch'>,
  target: string,
): Promise<void> {
  const uuid = uuidOf(inputsSha256)
  const argv = [
    'mkfs.erofs',
    '--quiet',
    '-x-1',
    '-zlz4hc,9',
    '-C65536',
    `-T${recipe.sourceDateEpoch}`,
    `-U${uuid}`,
    target,
    tree,
  ] as const
  await runTool(argv, { timeoutMs: 300_000, env: { SOURCE_DATE_EPOCH: String(recipe.sourceDateEpoch) } })
}

/** A checkout's modes hang on its umask; only the executable bit is the file's own. */
export async function layOver(overlayDir: string, tree: string): Promise<void> {
  for (const source of await filesBelow(overlayDir)) {
    const target = join(tree, relative(overlayDir, source))
    await mkdir(dirname(target), { recursive: true, mode: 0o755 })
    const executable = ((await stat(source)).mode & 0o100) !== 0
    await writeFile(target, await Bun.file(source).bytes())
    await chmod(target, executable ? 0o755 : 0o644)
  }
}

/** The recipe's login shell: bash, in a control group of its own. */
const loginShell = '/usr/lib/strongroom/login-shell'

async function addUser(
  recipe: MachineRecipe,
  { name, uid }: NonNullable<MachineRecipe['user']>,
  tree: string,
): Promise<void> {
  const home = join(tree, 'home', name)
  // `*` is no password and, unlike `!`, does not lock the account for sshd.
  await addAccount(recipe, { name, uid, rest: `/home/${name}:${loginShell}`, password: '*' }, tree)
  await cp(join(tree, 'etc/skel'), home, { recursive: true })
  await chmod(home, 0o750)
  await runTool(['chown', '--recursive', `${uid}:${uid}`, home], { timeoutMs: 10_000 })
}

async function addService(
  recipe: MachineRecipe,
  { name, uid }: NonNullable<MachineRecipe['services']>[number],
  tree: string,
): Promise<void> {
  await addAccount(recipe, { name, uid, rest: '/nonexistent:/usr/sbin/nologin', password: '!*' }, tree)
}

type Account = { readonly name: string; readonly uid: number; readonly rest: string; readonly password: string }

/** Fails where Debian's packages have an account of that name or number. */
async function addAccount(recipe: MachineRecipe, { name, uid, rest, password }: Account, tree: string): Promise<void> {
  const day = Math.floor(recipe.sourceDateEpoch / 86_400)
  const rows = (await readFile(join(tree, 'etc/passwd'), 'utf8')).split('\n').map(row => row.split(':'))
  const taken = rows.find(row => row[0] === name || row[2] === String(uid))
  if (taken !== undefined) throw new Error(`the account ${name}, ${uid}, is taken: ${taken.join(':')}`)
  await appendFile(join(tree, 'etc/passwd'), `${name}:x:${uid}:${uid}::${rest}\n`)
  await appendFile(join(tree, 'etc/group'), `${name}:x:${uid}:\n`)
  await appendFile(join(tree, 'etc/shadow'), `${name}:${password}:${day}:0:99999:7:::\n`)
  await appendFile(join(tree, 'etc/gshadow'), `${name}:!::\n`)
}

async function addModules(options: RootTreeOptions): Promise<void> {
  const { tree, kernel, modules } = options
  const versionDir = join(tree, 'usr/lib/modules', kernel.version)
  await installBuiltinLists(kernel, versionDir)
  await installModules(modules.all, versionDir)
  for (const stage of ['scratch', 'boot'] as const) {
    const dir = join(tree, 'usr/lib/modules', stage)
    await mkdir(dir, { recursive: true })
    for (const module of modules[stage]) {
      await symlink(join('..', kernel.version, module.path), join(dir, basename(module.path)))
    }
    await writeFile(join(dir, 'order'), loadingOrder(modules[stage]))
  }
  const dir = join(tree, 'usr/lib/modules/reach')
  if (modules.reach.length > 0) await mkdir(dir)
  for (const module of modules.reach) await writeFile(join(dir, basename(module.path)), module.bytes)
  if (modules.reach.length > 0) await writeFile(join(dir, 'order'), loadingOrder(modules.reach))
}
