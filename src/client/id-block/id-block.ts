// strongroom id-block: creates and checks ID blocks, which name the owner of a launch. Needs no daemon and no root.

import type { Command } from '../../terminal/command.ts'
import { addIdBlockCheck } from './check.ts'
import { addIdBlockCreate } from './create.ts'

export function addIdBlock(program: Command): void {
  const idBlock = program
    .command('id-block')
    .description("ID blocks, which name a launch's owner: create, check; offline, needs no daemon")
    .examples('strongroom id-block check --id-block id-block.bin --id-auth id-auth.bin')
  addIdBlockCreate(idBlock)
  addIdBlockCheck(idBlock, 'check')
}
