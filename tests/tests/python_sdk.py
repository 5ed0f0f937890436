"""Asks a server every tool through the official Python client, in one protocol era, and compares each
answer with its schema and with its own text.

    python_sdk.py MODE SERVER TRACE        MODE: auto (the client chooses) or legacy (with a handshake)

Prints one line of JSON: the protocol version, and the answer of each tool.
"""

import json
import sys

import anyio
from mcp import Client, MCPError, StdioServerParameters


async def main(mode, server, trace):
    parameters = StdioServerParameters(command=server, args=["--db", trace])
    async with Client(parameters, mode=mode) as client:
        answers = {}
        for tool in (await client.list_tools()).tools:
            assert tool.description and tool.output_schema, tool.name
            # The client itself refuses structured content that does not fit the tool's schema.
            result = await client.call_tool(tool.name, {})
            assert not result.is_error, (tool.name, result.content)
            (text,) = result.content
            assert json.loads(text.text) == result.structured_content, tool.name
            answers[tool.name] = result.structured_content

        refused = await client.call_tool("list_processes", {"limit": -1})
        assert refused.is_error and "limit" in refused.content[0].text, refused
        try:
            await client.call_tool("no_such_tool", {})
        except MCPError as error:
            assert "list_processes" in str(error), error
        else:
            raise AssertionError("an unknown tool was answered")
        print(json.dumps({"protocol": client.protocol_version, "answers": answers}))


anyio.run(main, *sys.argv[1:])
