# What is said while the model speaks is told when it has finished.
> user_message r1 {"messageId":"m","text":"go"}
> assistant_token r1 {"text":"One, "}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":""}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"One, "}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"One, "}}

> user_message r1 {"messageId":"m2","text":"faster","delivery":"steer","images":[{"mimeType":"image/png","data":"aGk="}]}

> assistant_token r1 {"text":"two."}
> assistant_done r1 {"messageId":"a1"}
> usage r1
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"One, two."}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"two."}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"One, two."}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_end","contentIndex":0,"content":"One, two."}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"One, two."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"text","text":"One, two."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"toolResults":[]}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"faster"},{"type":"image","data":"aGk=","mimeType":"image/png"}],"timestamp":3000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"faster"},{"type":"image","data":"aGk=","mimeType":"image/png"}],"timestamp":3000}}

> assistant_token r1 {"text":"Three."}
> assistant_done r1 {"messageId":"a2"}
> usage r1
> run_complete r1
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":""}],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000},"assistantMessageEvent":{"type":"text_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Three."}],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"Three."}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Three."}],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000},"assistantMessageEvent":{"type":"text_end","contentIndex":0,"content":"Three."}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"Three."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"text","text":"Three."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000},"toolResults":[]}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000},{"role":"assistant","content":[{"type":"text","text":"One, two."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},{"role":"user","content":[{"type":"text","text":"faster"},{"type":"image","data":"aGk=","mimeType":"image/png"}],"timestamp":3000},{"role":"assistant","content":[{"type":"text","text":"Three."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000}]}
