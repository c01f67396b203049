// The runtime's compiler, in this thread. Effects: it compiles sooner.

/**
 * For programs that run for long. The appliance's executable starts each of its threads with a compiler that waits
 * (`compilesLater` in scripts/build/recipes.ts), because most commands end before compiled code has earned its cost.
 */
export function compileAsUsual(): void {
  Bun.unsafe.setJITPolicy(1)
}
