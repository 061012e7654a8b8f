"""Real agents that speak the Agent Client Protocol, set up as a config would: a room of their own, no login."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clis import binary_of

from windlass.agents.cli.opencode import INSTALLED
from windlass.testing.scripted_model import ScriptedModel

AGENTS = ("claude-agent-acp", "opencode", "gemini")
FOLDERS = ("data", "state", "cache")


def settings(name: str, server: ScriptedModel, folder: Path) -> dict[str, Any]:
    agents = {"claude-agent-acp": _claude, "opencode": _opencode, "gemini": _gemini}
    return agents[name](server.url_for("{job}"), folder)


def as_config(name: str, server: ScriptedModel, folder: Path) -> str:
    """TOML writes texts and lists as JSON does."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings(name, server, folder).items()]
    return "\n".join(["[agents]", 'default = "acp"', "", "[agents.acp]", *lines])


def _claude(url: str, folder: Path) -> dict[str, Any]:
    env = [
        f"ANTHROPIC_BASE_URL={url}",
        "ANTHROPIC_API_KEY=scripted",
        "CLAUDE_CONFIG_DIR={folder}/room",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
        "CLAUDE_CODE_MAX_RETRIES=2",
    ]
    return {"argv": [str(binary_of("claude-agent-acp"))], "env": env}


def _opencode(url: str, folder: Path) -> dict[str, Any]:
    server = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "scripted"},
        "models": {"m": {"limit": {"context": 200_000, "output": 32_000}}},
    }
    config = {"provider": {"p": server}, "permission": {"edit": "ask", "bash": "ask"}, "share": "disabled"}
    off = ("AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "CLAUDE_CODE", "EXTERNAL_SKILLS")
    env = [f"XDG_{name.upper()}_HOME={{folder}}/room/{name}" for name in FOLDERS]
    env.append(f"XDG_CONFIG_HOME={_installed(folder / 'config')}")
    env += [f"OPENCODE_DISABLE_{name}=1" for name in off]
    env.append(f"OPENCODE_CONFIG_CONTENT={json.dumps({**config, 'model': 'p/m', 'small_model': 'p/m'})}")
    return {"argv": [str(binary_of("opencode")), "acp"], "env": env, "model": "p/m"}


def _installed(config: Path) -> Path:
    """Or it fetches a package from the registry of npm."""
    for path, text in INSTALLED.items():
        (config / path).parent.mkdir(parents=True, exist_ok=True)
        (config / path).write_text(text)
    return config


def _gemini(url: str, folder: Path) -> dict[str, Any]:
    env = [
        "HOME={folder}",
        f"GOOGLE_GEMINI_BASE_URL={url}",
        "GEMINI_API_KEY=scripted",
        "GEMINI_CLI_NO_RELAUNCH=true",
    ]
    argv = [str(binary_of("gemini")), "--acp", "--skip-trust", "-m", "gemini-2.5-pro"]
    return {"argv": argv, "env": env, "auth": "gemini-api-key"}
