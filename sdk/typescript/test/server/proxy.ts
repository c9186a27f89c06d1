/** A proxy that breaks connections, in front of a real server. */

import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import type { TestContext } from "node:test";

export class Proxy {
  readonly #sockets = new Set<Socket>();
  readonly #target: URL;
  readonly #server = createServer((client) => this.#pass(client));
  /** How many connections are still to be cut at the first byte of an answer: what was asked has been done by then. */
  answersToCut = 0;
  connections = 0;

  constructor(target: string) {
    this.#target = new URL(target);
  }

  static async before(context: TestContext, target: string): Promise<Proxy> {
    const proxy = new Proxy(target);
    await new Promise<void>((listening) => proxy.#server.listen(0, "127.0.0.1", listening));
    context.after(() => {
      proxy.cut();
      proxy.#server.close();
    });
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Break everything that is open. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #pass(client: Socket): void {
    this.connections++;
    const server = connect(Number(this.#target.port), this.#target.hostname);
    for (const [socket, other] of [[client, server], [server, client]] as const) {
      this.#sockets.add(socket);
      socket.on("error", () => other.destroy());
      socket.on("close", () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
    }
    client.pipe(server);
    server.on("data", (data) => {
      if (this.answersToCut > 0) {
        this.answersToCut--;
        client.destroy();
      } else client.write(data);
    });
    server.on("end", () => client.end());
  }
}
