#!/usr/bin/env bun
// Compiles the guest agent, which the measured image holds.

import { buildMain } from './build/main.ts'
import { guestRecipe } from './build/recipes.ts'

await buildMain(guestRecipe, process.argv.slice(2))
