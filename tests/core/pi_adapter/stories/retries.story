# A model that does not answer is asked again: with success, and in vain.
> user_message r1 {"messageId":"m","text":"go"}
> retry_started r1 {"attempt":1,"maxAttempts":3,"delayMs":2000,"message":"overloaded"}
> retry_ended r1 {"succeeded":true,"attempt":1}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"overloaded"}
< {"type":"auto_retry_end","success":true,"attempt":1}

> retry_started r1 {"attempt":1,"maxAttempts":3,"delayMs":2000,"message":"overloaded"}
> retry_ended r1 {"succeeded":false,"attempt":3,"message":"overloaded for good"}
< {"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"overloaded"}
< {"type":"auto_retry_end","success":false,"attempt":3,"finalError":"overloaded for good"}
