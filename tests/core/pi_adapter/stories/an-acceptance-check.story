# A check of a run is a tool that is used, and no part of the conversation.
> user_message r1 {"messageId":"m","text":"go","acceptanceCriteria":[{"id":"t","check":"make test","exitCode":0}]}
> assistant_token r1 {"text":"Done."}
> assistant_done r1 {"messageId":"a1"}
> usage r1
> tool_call r1 {"source":"acceptance","check":0,"toolName":"sandbox_exec","callId":"c1","args":{"command":"make test"}}
> status r1 {"phase":"started","detail":"sandbox_exec","callId":"c1"}
> tool_result r1 {"source":"acceptance","check":0,"toolName":"sandbox_exec","callId":"c1","exitCode":1,"status":"failed","isError":true}
> run_complete r1 {"outcome":"failed","summary":"acceptance failed: t","headless":{"exitCodeHint":4}}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":""}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Done."}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"Done."}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Done."}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_end","contentIndex":0,"content":"Done."}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"Done."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"text","text":"Done."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"toolResults":[]}
< {"type":"tool_execution_start","toolCallId":"c1","toolName":"sandbox_exec","args":{"command":"make test"}}
< {"type":"tool_execution_end","toolCallId":"c1","toolName":"sandbox_exec","result":{"content":[{"type":"text","text":"it failed"}],"details":{"durationMs":5,"exitCode":1}},"isError":true}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":8000}}
< {"type":"message_end","message":{"role":"assistant","content":[],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"error","errorMessage":"acceptance failed: t","timestamp":8000}}
< {"type":"turn_end","message":{"role":"assistant","content":[],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"error","errorMessage":"acceptance failed: t","timestamp":8000},"toolResults":[]}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000},{"role":"assistant","content":[{"type":"text","text":"Done."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},{"role":"assistant","content":[],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"error","errorMessage":"acceptance failed: t","timestamp":8000}]}
