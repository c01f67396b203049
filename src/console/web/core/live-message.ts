// Messages of the live stream, and the delay before it is reopened. Pure.

export const LIVE_TOPICS = ['status', 'organizations', 'keys', 'instances', 'builds', 'gateway', 'events'] as const
export type LiveTopic = (typeof LIVE_TOPICS)[number]

const retryMsMax = 30_000

/** Doubles the delay with each failure, up to a limit. `random` (0 to 1) spreads pages that lost the same appliance. */
export function retryDelayMs(failures: number, random: number): number {
  const whole = Math.min(retryMsMax, 1_000 * 2 ** Math.min(failures - 1, 10))
  return Math.round(whole / 2 + (whole / 2) * random)
}

/** Returns the topics in a message. Ignores unknown topics of a newer appliance. */
export function topicsIn(text: string): readonly LiveTopic[] {
  try {
    const topics: unknown = Reflect.get(Object(JSON.parse(text)), 'topics')
    return Array.isArray(topics) ? LIVE_TOPICS.filter(topic => topics.includes(topic)) : []
  } catch {
    return []
  }
}
