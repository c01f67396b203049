#!/usr/bin/env bun
// Compiles the builder, which the measured image of builds holds.

import { buildMain } from './build/main.ts'
import { builderRecipe } from './build/recipes.ts'

await buildMain(builderRecipe, process.argv.slice(2))
