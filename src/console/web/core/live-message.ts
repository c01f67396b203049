// Messages of the live stream, and the wait before it is opened again. Pure.

export const LIVE_TOPICS = ['status', 'organizations', 'keys', 'instances', 'builds', 'gateway', 'events'] as const
export type LiveTopic = (typeof LIVE_TOPICS)[number]

const retryMsMax = 30_000

/** Doubles with each failure, up to its bound; `random` from 0 to 1 spreads pages that lost the same appliance. */
export function retryDelayMs(failures: number, random: number): number {
  const whole = Math.min(retryMsMax, 1_000 * 2 ** Math.min(failures - 1, 10))
  return Math.round(whole / 2 + (whole / 2) * random)
}

/** The topics that a message names; unknown ones, of a newer appliance, are left out. */
export function topicsIn(text: string): readonly LiveTopic[] {
  try {
    const topics: unknown = Reflect.get(Object(JSON.parse(text)), 'topics')
    return Array.isArray(topics) ? LIVE_TOPICS.filter(topic => topics.includes(topic)) : []
  } catch {
    return []
  }
}
