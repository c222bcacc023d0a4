// A Worker made of a hidden frame: browsers start no real one for pages that are opened as files. The theme's search knows it by its name.
(() => {
  class IFrameWorker extends EventTarget {
    constructor(address) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inner = this.frame.contentWindow
      inner.document.open()
      inner.document.write(`<script src="${address}"><\/script>`)
      inner.postMessage = data => {
        const event = new MessageEvent("message", {data})
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      inner.document.close()
      this.frame.addEventListener("load", () => {
        for (const data of this.waiting.splice(0)) this.deliver(data)
        this.ready = true
      })
    }
    deliver(data) {
      const inner = this.frame.contentWindow
      inner.dispatchEvent(new inner.MessageEvent("message", {data}))
    }
    postMessage(data) {
      if (this.ready) this.deliver(data)
      else this.waiting.push(data)
    }
    terminate() {
      this.frame.remove()
    }
  }
  if (location.protocol === "file:") {
    window.IFrameWorker = IFrameWorker
    window.Worker = IFrameWorker
  }
})()
