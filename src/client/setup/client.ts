// strongroom client: the client's own configuration. Effects: loads modules.

import type { Command } from '../../terminal/command.ts'
import { addClientInit } from './init.ts'

export function addClient(program: Command): void {
  const client = program
    .command('client')
    .description("the client's configuration, client.toml: init")
    .examples('strongroom client init https://instances.agents.example:8441 --files operator --key-file key.txt')
  addClientInit(client)
}
