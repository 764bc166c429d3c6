"""A link to a node that can be made slow: a proxy before the port at which the node listens to others."""

import asyncio
import threading

CHUNK_BYTES = 64 << 10


class SlowLink:
    """Passes what comes at `port` on to `to`, each chunk after `delay` seconds. Answers pass at once."""

    def __init__(self, port, to):
        self.port, self.to, self.delay = port, to, 0.0
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", port))
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def _accept(self, reader, writer):
        try:
            onward, backward = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            # The node does not run.
            writer.close()
            return
        await asyncio.gather(self._pass_slowly(reader, backward), self._pass(onward, writer))

    async def _pass(self, reader, writer):
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    async def _pass_slowly(self, reader, writer):
        chunks = asyncio.Queue()

        async def write():
            while chunk := await self._due(chunks):
                try:
                    writer.write(chunk)
                    await writer.drain()
                except OSError:
                    break
            writer.close()

        writing = asyncio.ensure_future(write())
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                chunks.put_nowait((self.loop.time() + self.delay, chunk))
        except OSError:
            pass
        chunks.put_nowait((self.loop.time(), b""))
        await writing

    async def _due(self, chunks):
        due, chunk = await chunks.get()
        await asyncio.sleep(max(0.0, due - self.loop.time()))
        return chunk
