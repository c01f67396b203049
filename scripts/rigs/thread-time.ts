// Processor time of this thread: what work costs, however busy the machine is.

type WithThreads = { readonly threadCpuUsage: () => { readonly user: number; readonly system: number } }

/** The types of Bun 1.4.5 do not know it yet. */
export function threadCpuMs(): number {
  const { user, system } = (process as unknown as WithThreads).threadCpuUsage()
  return (user + system) / 1000
}
