// Drives Perdure with one of the protocol's official clients: node drive.mjs MODULES
// ORDER, where ORDER is JSON {sdk, url, token, command, args, env}. It prints "~started"
// when the flow runs, so that its server can be killed, and in the end "~done" with
// what it saw.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import path from 'node:path'

const [modules, text] = process.argv.slice(2)
const order = JSON.parse(text)
const require = createRequire(path.join(modules, 'drive.cjs'))
const load = async (name) => import(pathToFileURL(require.resolve(name)))

const names = order.sdk === 1
  ? ['@modelcontextprotocol/sdk/client/index.js', '@modelcontextprotocol/sdk/client/streamableHttp.js', '@modelcontextprotocol/sdk/client/stdio.js']
  : ['@modelcontextprotocol/client', '@modelcontextprotocol/client', '@modelcontextprotocol/client/stdio']
const [base, http, stdio] = await Promise.all(names.map(load))

let client
async function connect() {
  client = new base.Client({ name: 'drive', version: '1' })
  const transport = order.url
    ? new http.StreamableHTTPClientTransport(new URL(order.url), { requestInit: { headers: { Authorization: 'Bearer ' + order.token } } })
    : new stdio.StdioClientTransport({ command: order.command, args: order.args, env: { ...process.env, ...order.env } })
  await client.connect(transport)
}

// again repeats what failed because nothing answered: all calls here can be repeated.
let lost = 0
async function again(what) {
  for (let attempt = 0; ; attempt++) {
    try {
      if (!client) await connect()
      return await what()
    } catch (err) {
      if (attempt === 200) throw err
      lost++
      client = undefined
      await new Promise((next) => setTimeout(next, 50))
    }
  }
}

async function call(name, args = {}) {
  for (let attempt = 0; ; attempt++) {
    const res = await again(() => client.callTool({ name, arguments: args }))
    if (!res.isError) return res.structuredContent
    const problem = JSON.parse(res.content[1].text)
    if (![503, 500].includes(problem.status) || attempt === 50) throw new Error(`${name}: ${res.content[0].text}`)
    await new Promise((next) => setTimeout(next, 50))
  }
}

const check = (ok, what) => { if (!ok) throw new Error(what) }

const listed = await again(() => client.listTools())
const tool = listed.tools.find((t) => t.name === 'flow_clerk')
check(tool && tool.annotations.readOnlyHint === false, 'the flow is no tool')
check(listed.tools.find((t) => t.name === 'threads_get').annotations.readOnlyHint, 'reading changes something')

const run = await call('flow_clerk', { input: 'refund order 7', idempotency_key: 'once' })
console.log('~started')
const seen = []
async function follow() {
  for (let after = seen.at(-1) ?? 0; ;) {
    const got = await call('events_follow', { thread: run.thread, run: run.run, after: String(after), seconds: 5 })
    for (const e of got.events) seen.push(e.seq)
    after = got.next
    if (got.over) return got.done
  }
}
const waits = await follow()
check(waits.asks?.length === 1, `it does not wait for a person: ${JSON.stringify(waits)}`)
check(seen.every((seq, i) => i === 0 || seq > seen[i - 1]), `events are repeated: ${seen}`)

const repeated = await call('flow_clerk', { input: 'refund order 7', idempotency_key: 'once' })
check(repeated.run === run.run && repeated.thread === run.thread, 'the same key started another run')
const history = await call('history_list', { thread: run.thread })
const asks = await call('asks_list', {})
check(asks.source === 'threads' && asks.result.asks[0].decisions.includes('edit'), JSON.stringify(asks))
await call('asks_answer', { ask: asks.result.asks[0].id, decision: 'edit', value: { amount: 5 } })
let over
do over = await call('runs_wait', { thread: run.thread, run: run.run, seconds: 5 }); while (!over.result.over)
check(over.result.run.status === 'succeeded', JSON.stringify(over))

const fork = await call('threads_fork', { thread: run.thread, at: history.result.checkpoints[0].seq })
check(fork.result.from === run.thread, JSON.stringify(fork))
const pages = await call('docs_list')
const page = await call('docs_read', { name: pages.pages.find((p) => p.name === 'mcp').name })
check(page.text.includes('/mcp') && (await call('docs_search', { query: 'idempotency' })).lines.length > 0, 'there is no documentation')
const wrong = await client.callTool({ name: 'threads_get', arguments: { thread: 'nowhere' } })
check(wrong.isError && wrong.content[0].text.includes('no-thread'), JSON.stringify(wrong))
let unknown
try { await client.callTool({ name: 'no_such_tool', arguments: {} }) } catch (err) { unknown = err }
check(unknown, 'an unknown tool was called')
await client.close()
console.log('~done ' + JSON.stringify({ thread: run.thread, events: seen.length, lost, tools: listed.tools.length }))
