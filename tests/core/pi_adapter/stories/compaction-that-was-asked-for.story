# One that was asked for is answered to who asked, and only shown to the others.
> user_message r1 {"messageId":"m","text":"one"}
> run_complete r1
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"one"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"one"}],"timestamp":1000}}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"message_end","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"turn_end","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"toolResults":[]}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"one"}],"timestamp":1000},{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}]}

> compaction_started - {"reason":"manual","by":"pi"}
< {"type":"extension_ui_request","requestId":"setStatus-compaction-3","method":"setStatus","key":"compaction","text":"compacting"}

> context_compacted - {"summary":"One.","keptFromSeq":9,"tokensBefore":12}
< {"type":"extension_ui_request","requestId":"setStatus-compaction-4","method":"setStatus","key":"compaction","text":""}

> compaction_started - {"reason":"manual","by":"pi"}
> compaction_ended - {"ending":"aborted"}
< {"type":"extension_ui_request","requestId":"setStatus-compaction-5","method":"setStatus","key":"compaction","text":"compacting"}
< {"type":"extension_ui_request","requestId":"setStatus-compaction-6","method":"setStatus","key":"compaction","text":""}
