# A conversation that becomes too long: announced and made, failed, overflown, and one that nobody announced.
> user_message r1 {"messageId":"m","text":"one"}
> assistant_token r1 {"text":"1"}
> usage r1
> run_complete r1
> user_message r2 {"messageId":"m2","text":"two"}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"one"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"one"}],"timestamp":1000}}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":""}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"1"}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"1"}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"1"}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_end","contentIndex":0,"content":"1"}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"1"}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"text","text":"1"}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"toolResults":[]}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"one"}],"timestamp":1000},{"role":"assistant","content":[{"type":"text","text":"1"}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}]}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"two"}],"timestamp":5000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"two"}],"timestamp":5000}}

> compaction_started r2 {"reason":"threshold"}
< {"type":"auto_compaction_start","reason":"threshold"}

> compaction_ended r2 {"ending":"failed","message":"no answer","again":true}
< {"type":"auto_compaction_end","aborted":false,"willRetry":true,"errorMessage":"no answer"}

> compaction_started r2 {"reason":"overflow"}
> context_compacted r2 {"summary":"They counted.","keptFromSeq":5,"tokensBefore":900}
< {"type":"auto_compaction_start","reason":"overflow"}
< {"type":"auto_compaction_end","result":{"summary":"They counted.","firstKeptEntryId":"00000005","tokensBefore":900},"aborted":false,"willRetry":true}

> context_compacted r2 {"summary":"They counted on.","keptFromSeq":500,"tokensBefore":901}
< {"type":"auto_compaction_start","reason":"threshold"}
< {"type":"auto_compaction_end","result":{"summary":"They counted on.","firstKeptEntryId":"000001f4","tokensBefore":901},"aborted":false,"willRetry":false}

> compaction_started r2 {"reason":"threshold"}
> compaction_ended r2 {"ending":"aborted","message":"stopped"}
< {"type":"auto_compaction_start","reason":"threshold"}
< {"type":"auto_compaction_end","aborted":true,"willRetry":false}
