# Names, models, queues, notes and ends have no place in the conversation: they are shown.
> session_started - {"name":"first"}
> session_renamed - {"name":"second"}
> session_adjusted - {"provider":"openai","model":"g"}
> session_adjusted - {"thinking":"high","autoCompaction":false,"autoRetry":true}
> session_adjusted - {"provider":"ollama"}
> session_touched - {"what":"export"}
> session_loaded -
< {"type":"extension_ui_request","requestId":"setTitle-2","method":"setTitle","title":"second"}
< {"type":"extension_ui_request","requestId":"setStatus-model-3","method":"setStatus","key":"model","text":"openai/g"}
< {"type":"extension_ui_request","requestId":"setStatus-thinking-4","method":"setStatus","key":"thinking","text":"high"}
< {"type":"extension_ui_request","requestId":"setStatus-auto_compaction-4","method":"setStatus","key":"auto_compaction","text":"off"}
< {"type":"extension_ui_request","requestId":"setStatus-auto_retry-4","method":"setStatus","key":"auto_retry","text":"on"}
< {"type":"extension_ui_request","requestId":"setStatus-model-5","method":"setStatus","key":"model","text":"ollama"}

> user_message r1 {"messageId":"m","text":"go"}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":8000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":8000}}

> message_queued - {"messageId":"q1","text":"then this\nand more","queuedRunId":"r2"}
> message_queued - {"messageId":"q2","text":"and that","queuedRunId":"r3"}
> message_unqueued - {"messageId":"q2"}
< {"type":"extension_ui_request","requestId":"setWidget-queue-9","method":"setWidget","key":"queue","content":["then this"],"placement":"belowEditor"}
< {"type":"extension_ui_request","requestId":"setWidget-queue-10","method":"setWidget","key":"queue","content":["then this","and that"],"placement":"belowEditor"}
< {"type":"extension_ui_request","requestId":"setWidget-queue-11","method":"setWidget","key":"queue","content":["then this"],"placement":"belowEditor"}

> warning r1 {"code":"X","message":"careful"}
> error r1 {"code":"Y","message":"broken","retryable":false}
> run_recovered r1 {"found":"working"}
> events_lost - {"afterSeq":1,"untilSeq":15,"cause":"retention"}
< {"type":"extension_ui_request","requestId":"notify-12","method":"notify","message":"careful","notifyType":"warning"}
< {"type":"extension_ui_request","requestId":"notify-13","method":"notify","message":"broken","notifyType":"error"}
< {"type":"extension_ui_request","requestId":"notify-14","method":"notify","message":"the daemon restarted and resumes the run","notifyType":"info"}
< {"type":"extension_ui_request","requestId":"notify-15","method":"notify","message":"the older part of this session was removed","notifyType":"warning"}

> run_complete r1
> user_message r2 {"messageId":"q1","text":"then this\nand more"}
> run_complete r2
> session_ended -
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"ollama","provider":"ollama","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":16000}}
< {"type":"message_end","message":{"role":"assistant","content":[],"api":"ollama","provider":"ollama","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":16000}}
< {"type":"turn_end","message":{"role":"assistant","content":[],"api":"ollama","provider":"ollama","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":16000},"toolResults":[]}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":8000},{"role":"assistant","content":[],"api":"ollama","provider":"ollama","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":16000}]}
< {"type":"extension_ui_request","requestId":"setWidget-queue-17","method":"setWidget","key":"queue","content":[],"placement":"belowEditor"}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"then this\nand more"}],"timestamp":17000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"then this\nand more"}],"timestamp":17000}}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"ollama","provider":"ollama","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":18000}}
< {"type":"message_end","message":{"role":"assistant","content":[],"api":"ollama","provider":"ollama","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":18000}}
< {"type":"turn_end","message":{"role":"assistant","content":[],"api":"ollama","provider":"ollama","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":18000},"toolResults":[]}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"then this\nand more"}],"timestamp":17000},{"role":"assistant","content":[],"api":"ollama","provider":"ollama","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":18000}]}
< {"type":"extension_ui_request","requestId":"notify-19","method":"notify","message":"the session was ended by pi","notifyType":"info"}
