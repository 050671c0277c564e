// Real servers for tests: the test binary that PERDURE_STAGE names is one.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const program = process.env.PERDURE_STAGE ?? "";
const environment = { ...process.env, PERDURE_CONSOLE_STAGE: "1", PERDURE_SERVER: "", PERDURE_TOKEN: "" };

/** A server as a process of its own, in a folder of its own. */
export class Stage {
  url = "";
  private process: ChildProcess | undefined;
  private log = "";

  private constructor(
    readonly folder: string,
    private readonly args: string[],
  ) {}

  /** Starts perdure dev, whose owner needs no token. */
  static async dev() {
    return Stage.begin(["dev"]);
  }

  /** Starts perdure serve, which needs tokens. */
  static async serve(...flags: string[]) {
    return Stage.begin(["serve", "--store", "sqlite:perdure.db", ...flags]);
  }

  private static async begin(args: string[]) {
    const stage = new Stage(mkdtempSync(join(tmpdir(), "perdure-console-")), args);
    await stage.start("127.0.0.1:0");
    return stage;
  }

  private async start(address: string) {
    this.log = "";
    const child = spawn(program, [...this.args, "--addr", address], { cwd: this.folder, env: { ...environment, HOME: this.folder }, stdio: ["ignore", "pipe", "pipe"] });
    this.process = child;
    const read = (data: Buffer) => {
      this.log += data.toString();
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    await until(async () => {
      if (child.exitCode !== null || child.signalCode !== null) throw new Error(`the server has ended: ${this.log}`);
      this.url = /http:\/\/127\.0\.0\.1:\d+/.exec(this.log)?.[0] ?? "";
      return this.url !== "" && (await fetch(`${this.url}/healthz`).then((r) => r.ok, () => false));
    }, () => `the server is ready: ${this.log}`);
  }

  /** Kills the server without a word. */
  async kill() {
    const child = this.process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
  }

  /** Starts it again at the same address. */
  async again() {
    await this.start(new URL(this.url).host);
  }

  /** Starts it again if it has died. It may die again at once. */
  async revive() {
    const child = this.process;
    if (child && (child.exitCode !== null || child.signalCode !== null)) await this.again().catch(() => {});
  }

  /** Runs a command of the program in the folder of the server. */
  command(...args: string[]): string {
    const done = spawnSync(program, args, { cwd: this.folder, env: { ...environment, HOME: this.folder }, encoding: "utf8" });
    if (done.status !== 0) throw new Error(`${args.join(" ")}: ${done.stderr}`);
    return done.stdout;
  }

  /** Creates a token. */
  token(name: string, ...flags: string[]): string {
    const made = JSON.parse(this.command("token", "create", name, ...flags, "--store", "sqlite:perdure.db", "--json")) as { secret: string };
    return made.secret;
  }

  /** Sends a request to the API. */
  async api<T = Record<string, unknown>>(method: string, path: string, body?: unknown, token?: string): Promise<T> {
    const response = await fetch(this.url + path, {
      method,
      headers: { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }

  /** Starts a run and returns its thread. */
  async run(flow: string, input: unknown, more: Record<string, unknown> = {}, token?: string): Promise<string> {
    return (await this.api<{ thread: string }>("POST", "/v1/runs", { flow, input, ...more }, token)).thread;
  }

  /** Returns the open asks of a thread once there are that many. */
  async asks(thread: string, many = 1, token?: string): Promise<{ id: string; run: string }[]> {
    let asks: { id: string; run: string }[] = [];
    await until(async () => {
      asks = (await this.api<{ asks: typeof asks }>("GET", `/v1/asks?thread=${thread}`, undefined, token)).asks;
      return asks.length === many;
    }, () => `${many} asks of ${thread}, not ${asks.length}`);
    return asks;
  }

  async end() {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Waits until something is so. The limit only bounds tests that fail. */
export async function until(so: () => Promise<boolean>, what: () => string) {
  const end = Date.now() + 60_000;
  while (!(await so())) {
    if (Date.now() > end) throw new Error(`it did not come: ${what()}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}
